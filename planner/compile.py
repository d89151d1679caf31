"""Points into a CP-SAT model, and CP-SAT's answer back into a plan. The only module that imports ortools.

One literal per point, exactly one is true. At each point every limit is one small linear inequality over the measures,
enforced by the point's literal; the step time is one variable above every form of the chosen point. Inner choices and
measures are integer variables tied by the point's relation. Memory is in bytes, time in microseconds, both exact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from ortools.sat.python import cp_model

from planner.beside import run_beside
from planner.errors import InputError, InternalError
from planner.forms import LARGEST, Form
from planner.objective import GRAIN
from planner.plan import Plan, Value
from planner.points import Point, Points
from planner.relations import Lines, affine_rows
from planner.rows import Rows
from planner.terms import TIME, ceil_divide

Objective = Literal["time", "memory", "rank", "overflow"]
Step = Sequence[tuple[Form, int]]
Stairs = Sequence[tuple[int, int]]
FEW_POINTS = 500  # below this the solver proves the optimum in less time than its presolve takes (measured)
LARGEST_PRODUCT = 2**58  # of a coefficient and the objective's domain


@dataclass(frozen=True)
class Answer:
    """What the solver found: status, the plan with its objective value, the proven bound, and the seconds it took.

    `value` and `bound` count whole grains of the objective, rounded up: microseconds, or `GRAIN` bytes.
    """

    status: Literal["optimal", "feasible", "infeasible", "stopped"]
    plan: Plan | None
    value: int | None
    bound: int | None
    seconds: float


@dataclass(frozen=True)
class Question:
    """What to ask of the points.

    `capacities` bound each device's moments in bytes and `time` in microseconds; `soft` ones of devices may be
    exceeded, and `overflow` minimises the largest excess. `time_at_most` and `memory_at_most` (microseconds, bytes)
    hold what is already proven where it is. `stop` is asked now and then whether the search shall end.
    """

    objective: Objective
    capacities: Mapping[str, int]
    time_limit: float
    soft: Mapping[str, int] = field(default_factory=dict)
    time_at_most: int | None = None
    memory_at_most: int | None = None
    workers: int = 1
    seed: int = 0
    stop: Callable[[], bool] | None = None


class _Model:
    """The CP-SAT model of one question, of the points alone that have a plan as good as any.

    Which these are is known from the points' rows before the solver is asked; what it proves has to agree.
    """

    def __init__(self, points: Points, question: Question) -> None:
        self.points, self.question = points, question
        self.model = cp_model.CpModel()
        self.measures = [self.model.new_int_var(0, measure_bound, name) for name, measure_bound in _bounds(points)]
        self.inner = [self.model.new_int_var(0, len(choice.values) - 1, choice.name) for choice in points.inner]
        self.ceiling = LARGEST  # no plan reaches less
        self.known: tuple[Point, int] | None = None  # a point and its row that reach the ceiling
        self.offset = 0  # what the objective's variable counts from
        kept = self._kept([point for point in points.points if self._possible(point)])
        self.literals = [(self.model.new_bool_var(f"point {index}"), point) for index, point in enumerate(kept)]
        self.model.add_exactly_one(literal for literal, _ in self.literals)
        self._relations()
        self._limits()
        self._objective()

    def _kept(self, possible: Sequence[Point]) -> Sequence[Point]:
        """The points with a plan as good as any; all of them where no row of any holds, for the solver to prove."""
        rows, ranked = Rows(self.points), self.question.objective == "rank"
        bounds = [point.rank if ranked else self._least(point) for point in possible]
        reached = {}
        for bound, index in sorted(zip(bounds, range(len(possible)), strict=True)):
            if bound > self.ceiling:
                break  # no point from here on reaches the ceiling
            point = possible[index]
            forms = None if ranked else self._forms(point)
            reached[index], row = rows.best(point, list(self._bounded(point)), forms)
            if reached[index] < self.ceiling:
                self.ceiling, self.known = reached[index], (point, row)
        if self.known is None:
            return possible
        return [possible[index] for index, value in sorted(reached.items()) if value == self.ceiling]

    def _boxes(self, point: Point) -> tuple[tuple[int, int], ...]:
        """The boxes of the measures at a point."""
        return self.points.relations[point.key].boxes

    def _bounded(self, point: Point) -> Iterable[tuple[Form, int]]:
        """Every form of a point that has a bound, with it."""
        question = self.question
        for device, forms in point.memory.items():
            yield from ((form, question.capacities[device]) for form in forms if device in question.capacities)
        if question.memory_at_most is not None:
            yield from ((form, question.memory_at_most) for form in point.memory.get("gpu", ()))
        if TIME in question.capacities:
            yield from ((form, question.capacities[TIME]) for form in point.time)
        if question.time_at_most is not None:
            yield from ((form, question.time_at_most) for form in point.time)

    def _possible(self, point: Point) -> bool:
        """Whether every bound can hold somewhere in the point's boxes."""
        boxes = self._boxes(point)
        return all(form.least(boxes) <= bound for form, bound in self._bounded(point))

    def _least(self, point: Point) -> int:
        """A lower bound of the objective at a point; above the ceiling some plan is better than all of the point."""
        boxes = self._boxes(point)
        return max((form.least(boxes) for form in self._forms(point)), default=0)

    def _relations(self) -> None:
        """Inner choices and measures go together as the chosen point's relation says.

        Linear equations where every measure is affine in a single inner choice, else one table with the relation's
        number as its first column (tables take no enforcement literal in older solvers).
        """
        by_key: dict[tuple[Value, ...], list[cp_model.IntVar]] = {}
        for literal, point in self.literals:
            by_key.setdefault(point.key, []).append(literal)
        lines = {key: affine_rows(self.points.relations[key]) for key in by_key} if len(self.inner) == 1 else {}
        if by_key and all(lines.get(key) for key in by_key):
            for key, literals in by_key.items():
                chosen = self.model.new_bool_var(f"relation {key}")
                self.model.add(sum(literals) == chosen)
                self._lines(lines[key], chosen)  # type: ignore[arg-type]
            return
        numbers = {key: number for number, key in enumerate(by_key)}
        number = self.model.new_int_var(0, max(0, len(numbers) - 1), "relation")
        self.model.add(number == sum(numbers[point.key] * literal for literal, point in self.literals))
        rows = [(numbers[key], *row) for key in by_key for row in self.points.relations[key].rows]
        self.model.add_allowed_assignments([number, *self.inner, *self.measures], rows)

    def _lines(self, lines: Lines, chosen: cp_model.IntVar) -> None:
        """The bounds of the inner choice, and every measure as a line over it, where the relation is chosen."""
        (low, high), pairs = lines
        self.model.add_linear_constraint(self.inner[0], low, high).only_enforce_if(chosen)
        for measure, (constant, slope) in zip(self.measures, pairs, strict=True):
            self.model.add(measure == constant + slope * self.inner[0]).only_enforce_if(chosen)

    def _expression(self, form: Form) -> cp_model.LinearExprT:
        """A form over the measures' variables."""
        return cp_model.LinearExpr.weighted_sum(self.measures, form.slopes) + form.constant

    def _limits(self) -> None:
        """Every device holds every moment; proven objectives stay as good as they are."""
        for literal, point in self.literals:
            for form, bound in self._bounded(point):
                if form.most(self._boxes(point)) > bound:
                    self.model.add(self._expression(form) <= bound).only_enforce_if(literal)

    def _objective(self) -> None:
        """Minimise what was asked for."""
        if self.question.objective == "rank":
            pairs = zip(self.points.inner_weights, self.inner, strict=True)
            position = sum(weight * variable for weight, variable in pairs)
            self.model.minimize(sum(point.rank * literal for literal, point in self.literals) + position)
            return
        most = (form.most(self._boxes(point)) for _, point in self.literals for form in self._forms(point))
        lowest = [ceil_divide(self._least(point), self.grain) for _, point in self.literals]
        self.offset = min(lowest, default=0)
        top = ceil_divide(min(self.ceiling, max(most, default=0)), self.grain) - self.offset
        steepest = max((abs(s) for _, point in self.literals for f in self._forms(point) for s in f.slopes), default=0)
        if steepest * max(1, top) > LARGEST_PRODUCT:
            raise InputError("the job's numbers are beyond what the solver can hold", expected="smaller sizes")
        value = self.model.new_int_var(0, max(0, top), "objective")  # above the least that any point can have
        for literal, point in self.literals:
            forms, boxes = self._forms(point), self._boxes(point)
            least = self._least(point)
            for form in forms:
                if form.most(boxes) > least:
                    beyond = self._expression(form) - self.grain * self.offset
                    self.model.add(self.grain * value >= beyond).only_enforce_if(literal)
        literals, above = [literal for literal, _ in self.literals], [least - self.offset for least in lowest]
        self.model.add(value >= cp_model.LinearExpr.weighted_sum(literals, above))  # helps the proof
        self.model.minimize(value)

    @property
    def grain(self) -> int:
        """Bytes or microseconds of one unit of the objective."""
        return GRAIN if self.question.objective in ("memory", "overflow") else 1

    def _forms(self, point: Point) -> Sequence[Form]:
        """The forms of which the largest is the objective."""
        if self.question.objective == "time":
            return point.time
        if self.question.objective == "memory":
            return point.memory.get("gpu", ())
        if self.question.objective == "rank":
            return ()
        return [
            Form(form.constant - capacity, form.slopes)
            for device, capacity in self.question.soft.items()
            for form in point.memory.get(device, ())
        ]

    def solve(self) -> Answer:
        """Runs the solver and reads the plan off.

        Small models run without presolve; that nothing fits is then only believed when a run with presolve agrees.
        """
        few = len(self.literals) <= FEW_POINTS
        answer = self._run(presolve=not few)
        if answer.status != "infeasible" or not few or not self.literals:
            return answer
        again = self._run(presolve=True)
        return replace(again, seconds=answer.seconds + again.seconds)

    def _run(self, presolve: bool) -> Answer:
        """One run of the solver. Raises InternalError where it denies a plan that is known to hold."""
        solver = cp_model.CpSolver()
        solver.parameters.num_workers = self.question.workers
        solver.parameters.cp_model_presolve = presolve
        solver.parameters.random_seed = self.question.seed
        solver.parameters.max_time_in_seconds = max(0.01, self.question.time_limit)
        solver.parameters.catch_sigint_signal = False  # its own handler would leave the process without one
        status = run_beside(lambda: solver.solve(self.model), solver.stop_search, self.question.stop)
        seconds = solver.wall_time
        if status == cp_model.INFEASIBLE and presolve and self.known is not None:
            raise InternalError("the solver finds no plan where one is known")
        if status == cp_model.MODEL_INVALID:
            raise InputError("the job's numbers are beyond what the solver can hold", expected="smaller sizes")
        if status == cp_model.INFEASIBLE:
            return Answer("infeasible", None, None, None, seconds)
        if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            return self._without_solver(seconds)
        bound = round(solver.best_objective_bound) + self.offset
        name: Literal["optimal", "feasible"] = "optimal" if status == cp_model.OPTIMAL else "feasible"
        return Answer(name, self._plan(solver), round(solver.objective_value) + self.offset, bound, seconds)

    def _without_solver(self, seconds: float) -> Answer:
        """What the rows say where the solver came to nothing."""
        if self.known is None:
            return Answer("stopped", None, None, None, seconds)
        point, row = self.known
        plan = self._with_inner(point, self.points.relations[point.key].rows[row])
        value = ceil_divide(self.ceiling, self.grain)
        return Answer("optimal", plan, value, value, seconds)

    def _with_inner(self, point: Point, places: Sequence[int]) -> Plan:
        """A point's values and the inner choices' at their places, in the order of the space."""
        pairs = zip(self.points.inner, places, strict=False)
        values = {**point.values, **{choice.name: choice.values[place] for choice, place in pairs}}
        return Plan({choice.name: values[choice.name] for choice in self.points.space.choices})

    def _plan(self, solver: cp_model.CpSolver) -> Plan:
        """The chosen point's values and the inner choices'."""
        point = next(point for literal, point in self.literals if solver.boolean_value(literal))
        return self._with_inner(point, [solver.value(variable) for variable in self.inner])


def _bounds(points: Points) -> Iterable[tuple[str, int]]:
    """Each measure with its largest value at any point; a rule left out may allow more than the model has."""
    relations = {id(found): found for found in (points.relations[point.key] for point in points.points)}.values()
    for index, name in enumerate(points.measures):
        yield name, max((relation.boxes[index][1] for relation in relations), default=0)


def feasible(points: Points, question: Question) -> bool:
    """Whether some plan satisfies the question's capacities, whatever its objective."""
    if not points.points:
        return False
    model = _Model(points, replace(question, objective="rank"))
    return model.known is not None or model.solve().status != "infeasible"


class _Below(_Model):
    """The model of one question with one demand more: to lie below stairs of two coordinates."""

    def __init__(self, points: Points, question: Question, pairs: Sequence[Sequence[Step]]) -> None:
        self.pairs = pairs
        super().__init__(points, question)

    def _kept(self, possible: Sequence[Point]) -> Sequence[Point]:
        """All points: what is best is above the stairs."""
        return possible

    def _objective(self) -> None:
        """Nothing is minimised: the chosen point is below at least one of the steps it may be below."""
        steps_of = {id(point): steps for point, steps in zip(self.points.points, self.pairs, strict=True)}
        for literal, point in self.literals:
            chosen = []
            for number, step in enumerate(steps_of[id(point)]):
                chosen.append(self.model.new_bool_var(f"step {number}"))
                for form, bound in step:
                    self.model.add(self._expression(form) <= bound).only_enforce_if(chosen[-1])
            self.model.add_bool_or([literal.negated(), *chosen])

    def solve(self) -> Answer:
        """One run without presolve, which takes longer than the proof; that no plan is there was found before."""
        return self._run(presolve=False)


def below(points: Points, question: Question, coordinates: tuple[str, str], stairs: Stairs) -> Answer:
    """A plan that satisfies the question's bounds and lies below the stairs; `infeasible` proves that there is none.

    `stairs` are places on the two coordinates (a device's bytes, or `time` in microseconds) by the first, rising, the
    second falling. A plan lies below where no step is at least as good in both.
    """
    firsts = [first - 1 for first, _ in stairs]
    regions = [*zip(firsts, [None, *(second - 1 for _, second in stairs)], strict=False), (None, stairs[-1][1] - 1)]
    kept, pairs = [], []
    for point in points.points:
        steps = [step for region in regions if (step := _step(points, point, coordinates, region)) is not None]
        if steps:
            kept.append(point)
            pairs.append(steps)
    if not kept:
        return Answer("infeasible", None, None, None, 0.0)
    return _Below(replace(points, points=tuple(kept)), question, pairs).solve()


def _step(
    points: Points, point: Point, coordinates: tuple[str, str], region: tuple[int | None, int | None]
) -> Step | None:
    """The bounded forms of a point below one step of the stairs; None where no row of it can be there."""
    boxes = points.relations[point.key].boxes
    found = []
    for name, bound in zip(coordinates, region, strict=True):
        if bound is not None:
            forms = point.time if name == "time" else point.memory.get(name, ())
            found += [(form, bound) for form in forms]
            if bound < 0:
                return None  # every coordinate is at least zero
    return found if all(form.least(boxes) <= bound for form, bound in found) else None


def ask(points: Points, question: Question) -> Answer:
    """The best plan for a question, with proof where time allows; `infeasible` is a proof too."""
    if not points.points:
        return Answer("infeasible", None, None, None, 0.0)
    return _Model(points, question).solve()

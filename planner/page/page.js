
'use strict';
// Shows what stands in the data; every figure and every sentence was made before. Only places on the screen are computed.
const data = JSON.parse(document.getElementById('data').textContent);
const SVG = 'http://www.w3.org/2000/svg';
const at = (id) => document.getElementById(id);
const words = (name) => name.replaceAll('_', ' ');
const text = (number) => data.strings[number];
const PARTS = ['plan', 'ledger', 'choices', 'step', 'file'];
let plan = null;
let phase = 0;

function make(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

function draw(tag, attributes, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

function table(caption, head, rows, numbersFrom) {
  const cell = (tag, content, place) => {
    const attributes = tag === 'th' ? {scope: 'col'} : {};
    if (place >= numbersFrom) attributes.class = 'number';
    return make(tag, attributes, content);
  };
  const line = (tag, cells) => make('tr', {}, ...cells.map((content, place) => cell(tag, content, place)));
  return make('table', {}, make('caption', {}, caption), make('thead', {}, line('th', head)),
    make('tbody', {}, ...rows.map((cells) => line('td', cells))));
}

// A name that may be broken after its underscores.
function breakable(name) {
  return make('span', {}, ...name.split(/(?<=_)/).flatMap((part) => [part, make('wbr')]));
}

// ── the plan ────────────────────────────────────────────────────────────────────────────────────────────────────────

function show(number, label) {
  const first = number === data.first;
  plan = data.plans[number];
  at('plan-title').textContent = first ? (plan.fits ? 'The best plan' : 'The nearest miss') : label[0].toUpperCase() + label.slice(1);
  for (const id of PARTS) at(id).hidden = false;
  at('back').hidden = first || data.first === null;
  at('plan-job').textContent = plan.job;
  at('plan-job').hidden = first;
  at('plan-verdict').textContent = `${plan.verdict[0].toUpperCase()}${plan.verdict.slice(1)}: ${plan.summary[0]}, ${plan.summary[1]}`;
  at('plan-verdict').className = plan.fits ? '' : 'bad';
  at('plan-broken').replaceChildren(...plan.broken.map((because) => make('li', {}, because)));
  at('figures').replaceChildren(...plan.figures.map(([name, value, note]) =>
    make('div', {}, make('dt', {}, name), make('dd', {}, value, make('small', {}, note)))));
  const meaning = (name, value) => (data.meanings[name] || {})[value] || '';
  at('choice-table').replaceChildren(table('Every choice of the plan', ['choice', 'value'],
    plan.choices.map(([name, value]) => [breakable(text(name)), make('span', {}, breakable(text(value)), make('small', {}, meaning(text(name), text(value))))]), 9));
  at('file-text').textContent = plan.file === null ? 'There is no DeepSpeed file for this plan: it does not fit, or its runtime is another.' : plan.file;
  at('copy').disabled = plan.file === null;
  at('copied').textContent = '';
  for (const point of document.querySelectorAll('.point')) {
    point.setAttribute('aria-pressed', String(Number(point.dataset.plan) === number));
  }
  showTime(plan.time);
  showPhase(plan.devices[0].peak);
}

function showPhase(number) {
  phase = number;
  const gpu = plan.devices[0];
  for (const button of at('phases').children) button.setAttribute('aria-pressed', String(Number(button.dataset.phase) === phase));
  at('before').disabled = phase === 0;
  at('after').disabled = phase === data.phases.length - 1;
  at('columns').replaceChildren(...plan.devices.map(column));
  const used = data.books.filter((_, book) => plan.devices.some((one) => one.phases.some((moment) => moment.books[book])));
  at('legend').replaceChildren(...used.map((book) => make('li', {}, make('span', {class: `swatch ${book}`}), words(book))));
  at('phase-text').textContent = plan.devices.map((device) => phaseText(device)).join('. ') + '.';
  at('books').replaceChildren(...plan.devices.map((device) => table(`${device.place}: ${device.planned_text} can be planned with of ${device.usable_text} usable`,
    ['phase', ...data.books.map(words), 'total'], device.phases.map((one, index) => [words(data.phases[index]), ...one.texts, one.text]), 1)));
  at('lines').replaceChildren(...plan.devices.map((device) => table(`${device.place}, lines in ${words(data.phases[phase])}`,
    ['line', 'book', 'size'], device.phases[phase].lines.map(([name, book, size]) => [text(name), words(data.books[book]), size]), 2)));
}

function phaseText(device) {
  const one = device.phases[phase];
  const peak = device.peak === phase ? ', the peak' : '';
  return `${device.place} in ${words(data.phases[phase])}${peak}: ${one.text} of ${device.planned_text}${one.over ? ', ' + one.over : ''}`;
}

// The ledger column: books from the bottom, activations hatched, what can be planned with and what is usable as lines.
function column(device) {
  const [left, width, bottom, height] = [8, 96, 336, 320];
  const one = device.phases[phase];
  const up = (bytes) => bottom - height * bytes / device.scale;
  const hatch = `hatch-${device.device}`;
  const picture = draw('svg', {viewBox: '0 0 280 350', role: 'img', 'aria-label': `${phaseText(device)}: ` +
    data.books.filter((_, book) => one.books[book]).map((name) => `${words(name)} ${one.texts[data.books.indexOf(name)]}`).join(', ')},
    draw('defs', {}, draw('pattern', {id: hatch, width: 8, height: 8, patternUnits: 'userSpaceOnUse', patternTransform: 'rotate(45)'},
      draw('rect', {class: 'hatch-back', width: 8, height: 8}), draw('line', {class: 'hatch-line', x1: 0, y1: 0, x2: 0, y2: 8}))),
    draw('rect', {class: 'outline', x: left, y: up(device.scale), width, height}));
  let total = 0;
  const labels = [];
  one.books.forEach((bytes, book) => {
    if (!bytes) return;
    const place = {x: left, y: up(total + bytes), width, height: up(total) - up(total + bytes)};
    const shape = draw('rect', {...place, class: `book book-${data.books[book]}`, 'data-book': data.books[book]},
      draw('title', {}, `${words(data.books[book])}: ${one.texts[book]}`));
    if (data.books[book] === 'activations') shape.setAttribute('fill', `url(#${hatch})`);
    picture.append(shape);
    if (place.height > 0.5) labels.push([place.y + place.height / 2 + 4, `${one.texts[book]} ${words(data.books[book])}`]);
    total += bytes;
  });
  apart(labels.map(([y]) => y), 13, 12).forEach((y, place) => {
    picture.append(draw('text', {x: left + width + 8, y}, labels[place][1]));
  });
  for (const [name, bytes] of [['planned', device.planned], ['usable', device.usable]]) {
    picture.append(draw('line', {class: name, x1: left - 6, x2: left + width + 6, y1: up(bytes), y2: up(bytes)}));
  }
  return make('figure', {class: 'column', 'data-device': device.device}, picture, make('figcaption', {},
    `${device.place}: ${one.text}${one.over ? ' (' + one.over + ')' : ''}. Lines: ${device.planned_text} to plan with, ${device.usable_text} usable`));
}

// Places from low on the screen to high, moved so that they keep a distance and stay below the upper edge.
function apart(places, distance, edge) {
  const moved = [];
  places.forEach((y, place) => moved.push(place ? Math.min(y, moved[place - 1] - distance) : y));
  for (let place = moved.length - 1, least = edge; place >= 0; place -= 1, least = moved[place + 1] + distance) {
    moved[place] = Math.max(moved[place], least);
  }
  return moved;
}

// ── the line of time ────────────────────────────────────────────────────────────────────────────────────────────────

function showTime(time) {
  at('step-text').textContent = `${time.text} a step; ${time.hidden} of work is hidden behind other work.`;
  const share = (part) => `${100 * part / time.total}%`;
  const roomy = (part) => part > 0.04 * time.total;
  const put = (element, start, length) => {
    element.style.left = share(start);
    element.style.width = share(length);
    return element;
  };
  const spans = time.windows.map(([window, start, length, taken]) =>
    put(make('span', {title: `${words(data.windows[window])}: ${taken}`}, roomy(length) ? words(data.windows[window]) : ''), start, length));
  const tracks = [make('div', {class: 'track', 'aria-hidden': 'true'}, make('span', {}, ''), make('div', {class: 'lane windows'}, ...spans))];
  data.rows.forEach((row, number) => {
    const found = time.segments.filter((segment) => segment[0] === number);
    if (!found.length) return;
    const lane = make('div', {class: 'lane', role: 'group', 'aria-label': row});
    for (const segment of found) {
      const [, state, , start, length, term] = segment;
      const said = segmentText(segment);
      const button = make('button', {type: 'button', class: `segment row-${row} state-${data.states[state]}`, 'aria-label': said, title: said}, roomy(length) ? text(term) : '');
      for (const event of ['mouseenter', 'focus', 'click']) button.addEventListener(event, () => { at('segment').textContent = said; });
      lane.append(put(button, start, length));
    }
    tracks.push(make('div', {class: 'track'}, make('span', {}, row), lane));
  });
  at('timeline').replaceChildren(...tracks);
  at('segment').textContent = 'Point at a stretch of work to read it.';
  at('segments').replaceChildren(table('The line of time', ['window', 'lane', 'work', 'state', 'time'],
    time.segments.map(([row, state, window, , , term, taken]) => [words(data.windows[window]), data.rows[row], text(term), data.states[state], taken]), 4));
}

function segmentText([row, state, window, , , term, taken]) {
  const how = data.states[state] === 'work' ? '' : `, ${data.states[state]}`;
  return `${text(term)}: ${taken} in ${words(data.windows[window])} (${data.rows[row]}${how})`;
}

// ── the frontier, the controls, the file ────────────────────────────────────────────────────────────────────────────

function connectFrontier() {
  const points = [...document.querySelectorAll('.point')];
  const tell = (point) => { at('pointed').textContent = [point.dataset.label, ...data.plans[point.dataset.plan].summary].join('\n'); };
  const take = (point) => show(Number(point.dataset.plan), point.dataset.label);
  if (points.length && !points.some((point) => point.getAttribute('tabindex') === '0')) points[points.length - 1].setAttribute('tabindex', '0');
  const chosen = points.find((point) => point.getAttribute('tabindex') === '0');
  if (chosen) tell(chosen);
  points.forEach((point, place) => {
    point.addEventListener('mouseenter', () => tell(point));
    point.addEventListener('focus', () => tell(point));
    point.addEventListener('click', () => take(point));
    point.addEventListener('keydown', (event) => {
      const step = {ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1}[event.key];
      const other = step ? points[place + step] : {Home: points[0], End: points[points.length - 1]}[event.key];
      if (event.key === 'Enter' || event.key === ' ') take(point);
      else if (!other) return;
      else {
        point.setAttribute('tabindex', '-1');
        other.setAttribute('tabindex', '0');
        other.focus();
      }
      event.preventDefault();
    });
  });
}

function answerOf(form) {
  const chosen = new FormData(form);
  return data.cells[`${chosen.get('gpu')}|${chosen.get('length')}|${chosen.get('size')}`];
}

function connectControls() {
  const form = at('what-if-form');
  const tell = () => {
    const [answer, number] = answerOf(form);
    at('what-if-answer').textContent = answer[0].toUpperCase() + answer.slice(1);
    return number;
  };
  form.addEventListener('change', () => {
    const number = tell();
    if (number !== null) show(number, 'the plan of the question below');
  });
  form.addEventListener('reset', () => setTimeout(tell));
  form.addEventListener('submit', (event) => event.preventDefault());
  tell();
}

async function copy() {
  let done = true;
  try {
    await navigator.clipboard.writeText(at('file-text').textContent);
  } catch {
    getSelection().selectAllChildren(at('file-text'));
    done = document.execCommand('copy');
  }
  at('copied').textContent = done ? 'Copied.' : 'The text is selected: copy it with the keyboard.';
}

function connectButtons() {
  for (const button of document.querySelectorAll('button.show')) {
    button.addEventListener('click', () => {
      show(Number(button.dataset.plan), button.dataset.label);
      at('plan').scrollIntoView();
      at('plan').focus({preventScroll: true});
    });
  }
  at('back').addEventListener('click', () => { at('what-if-form').reset(); show(data.first, ''); at('plan').focus(); });
  at('before').addEventListener('click', () => showPhase(phase - 1));
  at('after').addEventListener('click', () => showPhase(phase + 1));
  at('copy').addEventListener('click', copy);
  data.phases.forEach((name, number) => {
    const button = make('button', {type: 'button', 'data-phase': number, 'aria-pressed': 'false'}, words(name));
    button.addEventListener('click', () => showPhase(number));
    at('phases').append(button);
  });
  const legend = [...data.rows.map((row) => [`row-${row}`, row]), ['row-communication state-hidden', 'hidden behind other work']];
  at('step-legend').replaceChildren(...legend.map(([name, said]) => make('li', {}, make('span', {class: `swatch ${name}`}), said)));
}

connectButtons();
connectFrontier();
connectControls();
if (data.first === null) for (const id of PARTS) at(id).hidden = true; // nothing fits, and no plan is near
else show(data.first, '');

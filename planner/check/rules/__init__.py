"""What can be said about a file, one small function per rule, grouped by topic.

A rule takes the subject and yields its findings; `registry.ALL` lists every rule in the order of the answer.
"""

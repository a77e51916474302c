"""Do the tests notice a change of the code? One seeded edit after the other, and its tests.

python -m benchmarks.mutants [--count 300] [--seed 0] [--checkout DIR] [--json F]
python -m benchmarks.mutants --of F [--checkout DIR] [--json G]     what F's checkout killed, in DIR

An edit turns a comparison, an operator or a condition round, moves a number by one, or leaves a
statement out, in the rooms whose faults cost most. Once for a commit these rooms' tests run, and it
is noted which statements each executes; a mutant's tests are those that execute its statement, the
nearest first. A statement that no quick test executes in its own process is counted apart. A mutant
that was killed in the checkout of F and is not in DIR is a promise that lost its test, and the exit
status is 1.
"""

"""Who works on which job: claims, leases, settlements and what others see of a node.

Guarantee: a job is at any moment in exactly one place (its queue, the delayed set, one lease, or
ended); it is given out at least once and gets at most one final result, whatever process dies at
whatever instruction. Every step is one atomic script on RQ's own key layout and uses the server's
clock, so stock RQ tools read everything and the clocks of the nodes do not matter.

`settlement` says what can become of a claimed job, `desk` takes and gives, `presence` shows this
node to others, `scripts` loads the files in `lua/`, where every invariant is stated and kept.
"""

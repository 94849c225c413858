"""The admission room: may this node work now, and for whom?

A `Sensor` reads the machine into `Conditions`; `gate.admit` turns them, purely, into an
`Admission`; the `Gatekeeper` holds sensor, mode and clock and is all that the loop talks to.

Guarantee: what cannot be read is `unknown`, shown as such and never reported as nominal; closing is
never delayed; nobody holds a job while waiting here.
"""

"""coolhead_worker: one worker a node, one model call at a time, only while the machine is cool."""

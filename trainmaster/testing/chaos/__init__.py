"""Are the promises kept when real processes are killed and paused, disks fill up and the store is cut off? Real worlds."""

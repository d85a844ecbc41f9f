"""The smallest job: one line."""

print("done")

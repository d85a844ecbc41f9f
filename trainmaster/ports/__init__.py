"""What Trainmaster needs from outside, with its promises."""

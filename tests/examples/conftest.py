from process.world import world

__all__ = ["world"]

"""Small training scripts in plain Python. They wait at the gate, so that a test decides how far they come."""

#: Counts to the first argument, but never past the number in the gate file; saves each step by renaming into place.
COUNT = """
import os, sys, time
folder, gate, last = os.environ["TM_CHECKPOINT_DIR"], os.environ["GATE"], int(sys.argv[1])
path = os.path.join(folder, "state")
step = int(open(path).read()) if os.path.exists(path) else 0
print(f"attempt {os.environ['TM_ATTEMPT']} pid {os.getpid()} restored {step}", flush=True)
while step < last:
    while step >= int(open(gate).read() or 0):
        time.sleep(0.01)
    step += 1
    with open(path + ".tmp", "w") as file:
        file.write(str(step))
    os.replace(path + ".tmp", path)
    print(f"step {step}", flush=True)
"""

#: Before it counts: a child that leaves the session, and one that is forked twice so that nobody is its parent.
FAMILY = (
    """
import os, time
def idle(name):
    with open(os.path.join(os.path.dirname(os.environ["GATE"]), name), "w") as file:
        file.write(str(os.getpid()))
    while True:
        time.sleep(0.05)
if os.fork() == 0:
    os.setsid()
    idle("left-session")
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        idle("forked-twice")
    os._exit(0)
os.wait()
"""
    + COUNT
)

#: On SIGTERM: notes how often it was told, saves a last state slowly, and ends by itself.
POLITE = """
import os, signal, sys, time
folder, told = os.environ["TM_CHECKPOINT_DIR"], []
signal.signal(signal.SIGTERM, lambda *_: told.append(1))
print(f"attempt {os.environ['TM_ATTEMPT']} pid {os.getpid()} restored 0", flush=True)
while not told:
    time.sleep(0.01)
until = time.monotonic() + 0.5
while time.monotonic() < until:
    time.sleep(0.01)
open(os.path.join(folder, "state"), "w").write(f"final, told {len(told)} times")
print("saved", flush=True)
sys.exit(int(sys.argv[1]))
"""

#: Ignores SIGTERM, and so do a child in another session and one that was forked twice.
STUBBORN = """
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
where = os.path.dirname(os.environ["GATE"])
def idle(name):
    open(os.path.join(where, name), "w").write(str(os.getpid()))
    while True:
        time.sleep(0.05)
for name in ("left-session", "forked-twice"):
    if os.fork() == 0:
        os.setsid()
        if name == "forked-twice" and os.fork():
            os._exit(0)
        idle(name)
print(f"attempt {os.environ['TM_ATTEMPT']} pid {os.getpid()} restored 0", flush=True)
while True:
    time.sleep(0.05)
"""

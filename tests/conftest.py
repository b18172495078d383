import os

# Before torch is imported: test processes share the cores with whatever else runs.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

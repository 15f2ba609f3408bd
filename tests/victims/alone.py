"""No distributed code at all."""
import sys
import time

time.sleep(float(sys.argv[1]) if len(sys.argv) > 1 else 0)
print("hello", *sys.argv)

# A client of CephFS' library. Reads operations, one a line, and does each on all of its files.
import sys

import cephfs

conf, directory, own, shifted, each = sys.argv[1:5] + [int(sys.argv[5])]
fs = cephfs.LibCephFS(conffile=conf)
fs.mount()
print("ready", flush=True)
for line in sys.stdin:
    operation = line.strip()
    if operation == "mkdir":
        fs.mkdir(directory, 0o755)
    for number in range(each):
        if operation == "create":
            fs.mknod(f"{directory}/file-{own}-{number}", 0o100644, 0)
        elif operation == "stat":
            fs.stat(f"{directory}/file-{shifted}-{number}")
    print("done", flush=True)

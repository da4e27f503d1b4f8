#!/usr/bin/env python3
"""Ranks that stop, hang, die or get out of step: the others end within the deadline, with exit 3 and a message that
names rank and phase. Usage: failures.py MPIEXEC STEP_PROGRAM EPMOE"""
import os
import re
import signal
import subprocess
import sys
import time

MPIEXEC, PROGRAM, EPMOE = sys.argv[1:4]
DEADLINE = 3.0  # seconds a wait may last
MARGIN = 10.0   # for start-up, and for the launcher to clean up
failed = []


def check(name, condition, detail):
    print(f"{'ok  ' if condition else 'FAIL'} {name}", flush=True)
    if not condition:
        print("     " + detail.replace("\n", "\n     "), flush=True)
        failed.append(name)


def launch(ranks, *command, extra=()):
    line = [MPIEXEC, "-n", str(ranks), *extra, *command]
    return subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True)


def finish(process, seconds):
    """Output, exit status (None: it hung and was killed) and time taken."""
    start = time.time()
    try:
        output, _ = process.communicate(timeout=seconds)
        return output, process.returncode, time.time() - start
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
        return output, None, time.time() - start


def rank_pids(launcher_pid, executable):
    """Process of each rank below a launcher."""
    found = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.path.realpath(f"/proc/{pid}/exe") != os.path.realpath(executable):
                continue
            if os.getsid(int(pid)) != launcher_pid and not is_below(int(pid), launcher_pid):
                continue
            environment = open(f"/proc/{pid}/environ", "rb").read().split(b"\0")
        except (OSError, PermissionError):
            continue
        for entry in environment:
            match = re.match(rb"(?:OMPI_COMM_WORLD_RANK|PMI_RANK)=(\d+)", entry)
            if match:
                found[int(match.group(1))] = int(pid)
    return found


def is_below(pid, ancestor):
    while pid > 1:
        if pid == ancestor:
            return True
        try:
            pid = int(open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[1])
        except OSError:
            return False
    return False


def stop_strays(executable):
    """A stopped rank ignores its launcher's end."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.path.realpath(f"/proc/{pid}/exe") == os.path.realpath(executable):
                os.kill(int(pid), signal.SIGKILL)
        except OSError:
            pass


for strategy in ("alltoall", "allgather"):
    output, status, _ = finish(launch(3, PROGRAM, "none", "0", "3", str(DEADLINE), strategy), 60)
    check(f"{strategy}: all well", status == 0, f"status {status}\n{output}")
    for fault in ("stop", "stuck"):
        output, status, seconds = finish(launch(3, PROGRAM, fault, "1", "2", str(DEADLINE), strategy), 60)
        stop_strays(PROGRAM)
        named = re.search(r"rank [02]: waited \S+ s for rank 1 in [a-z ]+", output)
        check(f"{strategy}: {fault}: exit 3", status == 3, f"status {status} after {seconds:.1f} s\n{output}")
        check(f"{strategy}: {fault}: names rank and phase", bool(named), output)
        check(f"{strategy}: {fault}: soft deadline logged first", "waiting" in output, output)
        check(f"{strategy}: {fault}: in time", seconds < DEADLINE + MARGIN, f"{seconds:.1f} s")
# One rank ends its work a step early or late. It then waits in MPI_Finalize, where Open MPI's launcher does not always
# manage to end it, so each rank's own status is looked at.
for fault, waiting in (("fewer", (0, 2)), ("more", (1,))):
    shell = f'"{PROGRAM}" {fault} 1 2 {DEADLINE}; echo "rank ${{OMPI_COMM_WORLD_RANK:-$PMI_RANK}} status $?"'
    output, _, _ = finish(launch(3, "bash", "-c", shell), DEADLINE + MARGIN)
    stop_strays(PROGRAM)
    for rank in waiting:
        check(f"{fault} steps on one rank: rank {rank} ends with 3 in time", f"rank {rank} status 3" in output, output)
    check(f"{fault} steps on one rank: names rank and phase",
          bool(re.search(r"rank \d: waited \S+ s for ranks? [\d, ]+ in [a-z ]+", output)), output)

output, status, seconds = finish(launch(3, PROGRAM, "kill", "1", "2", str(DEADLINE)), 60)
check("a killed rank: non-zero within 10 s", status not in (0, None) and seconds < 10 + 2, f"status {status}, {seconds:.1f} s\n{output}")

version = subprocess.run([MPIEXEC, "--version"], capture_output=True, text=True).stdout
if re.search(r"\(Open MPI\) 4\.", version):
    # With the launcher's recovery mode nobody ends the survivors: they end by their own deadline, each with status 3.
    shell = f'"{PROGRAM}" kill 1 2 {DEADLINE}; s=$?; echo "survivor $OMPI_COMM_WORLD_RANK status $s"; exit $s'
    output, status, seconds = finish(launch(3, "bash", "-c", shell, extra=("--enable-recovery",)), 60)
    for rank in (0, 2):
        check(f"a killed rank, recovery mode: rank {rank} ends with 3", f"survivor {rank} status 3" in output, output)

# The command itself: a rank of a long run is stopped from outside.
process = launch(3, EPMOE, "run", "--tokens", "64", "--repeat", "1000000", "--timeout", str(DEADLINE))
time.sleep(4)
pids = rank_pids(process.pid, EPMOE)
check("epmoe run: ranks found", sorted(pids) == [0, 1, 2], str(pids))
if 2 in pids:
    os.kill(pids[2], signal.SIGSTOP)
output, status, seconds = finish(process, 60)
stop_strays(EPMOE)
check("epmoe run, a rank stopped: exit 3", status == 3, f"status {status} after {seconds:.1f} s\n{output}")
check("epmoe run, a rank stopped: names it", bool(re.search(r"for rank 2 in [a-z ]+", output)), output)
check("epmoe run, a rank stopped: in time", seconds < DEADLINE + MARGIN, f"{seconds:.1f} s")

print(f"{len(failed)} failed")
sys.exit(1 if failed else 0)

"""What happens when a rank stops: the others leave with exit 3 within the deadline and say whom they waited for."""
import os
import signal
import subprocess
import time

import harness
from harness import CliTest


def ranks_of(launcher):
    """Process ids of the ranks under a launcher, by their rank, from /proc."""
    parents, ranks = {}, {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
                parents[int(pid)] = int(file.read().rsplit(")", 1)[1].split()[1])
            with open(f"/proc/{pid}/environ", "rb") as file:
                names = dict(v.split(b"=", 1) for v in file.read().split(b"\0") if b"=" in v)
            rank = names.get(b"OMPI_COMM_WORLD_RANK", names.get(b"PMI_RANK"))
            if rank is not None and b"EPMOE_RESTARTED" in names:
                ranks[int(pid)] = int(rank)
        except OSError:
            continue

    def below(pid):
        while pid in parents:
            pid = parents[pid]
            if pid == launcher:
                return True
        return False

    return {rank: pid for pid, rank in ranks.items() if below(pid)}


class StoppedRank(CliTest):
    def start(self, ranks, *arguments):
        process = subprocess.Popen(harness.command(ranks, *arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   text=True, stdin=subprocess.DEVNULL, start_new_session=True)
        self.addCleanup(self.end, process)
        return process

    @staticmethod
    def end(process):
        for pid in ranks_of(process.pid).values():
            os.kill(pid, signal.SIGKILL)
        if process.poll() is None:
            process.kill()
            process.communicate()

    def wait_for_ranks(self, process, ranks):
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            found = ranks_of(process.pid)
            if len(found) == ranks:
                return found
            time.sleep(0.05)
        self.fail("ranks did not start")

    def test_sigstop(self):
        process = self.start(3, "run", "--tokens", 12, "--repeat", 100000000, "--timeout", 3)
        found = self.wait_for_ranks(process, 3)
        time.sleep(4)  # well into the steps
        self.assertIsNone(process.poll())
        os.kill(found[1], signal.SIGSTOP)
        start = time.monotonic()
        try:
            _, stderr = process.communicate(timeout=30)
        except subprocess.TimeoutExpired:
            self.fail("the job hangs")
        self.assertEqual(process.returncode, 3, stderr)
        self.assertLess(time.monotonic() - start, 20)
        lines = [line for line in stderr.splitlines() if line.startswith("epmoe: rank ")]
        self.assertTrue(lines, stderr)
        self.assertTrue(any("rank 1" in line.split(":", 2)[2] for line in lines), stderr)

    def test_killed(self):
        process = self.start(3, "run", "--tokens", 12, "--repeat", 100000000, "--timeout", 30)
        found = self.wait_for_ranks(process, 3)
        time.sleep(4)
        os.kill(found[2], signal.SIGKILL)
        try:
            process.communicate(timeout=10)
        except subprocess.TimeoutExpired:
            self.fail("the job hangs")
        self.assertNotEqual(process.returncode, 0)


if __name__ == "__main__":
    harness.main()

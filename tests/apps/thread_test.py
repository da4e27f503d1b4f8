"""How many threads a rank takes, and whether it pins them: affinity, control groups, ranks that share a node."""
import json
import os
import subprocess
import time

import harness
from harness import CliTest

NO_OPENMP_SETTINGS = {name: None for name in ("OMP_NUM_THREADS", "OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY")}
RUN = ("run", "--tokens", "12", "--log-level", "debug", "--json", "-")


def one_cpu_a_core():
    """The lowest CPU of each core that this process may use."""
    cores = {}
    for cpu in sorted(os.sched_getaffinity(0)):
        try:
            with open(f"/sys/devices/system/cpu/cpu{cpu}/topology/core_cpus_list", encoding="ascii") as file:
                cores.setdefault(file.read(), cpu)
        except OSError:
            cores[cpu] = cpu
    return sorted(cores.values())


def remove_group(group):
    """A group whose last process has just ended may be busy for a moment."""
    for _ in range(100):
        try:
            os.rmdir(group)
            return
        except OSError:
            time.sleep(0.05)


class Threads(CliTest):
    def run_with(self, start, arguments=RUN, env=None):
        """Runs one rank by a command that comes before; returns (threads, log)."""
        result = subprocess.run([*start, *harness.command(0, *arguments)], capture_output=True, text=True, timeout=60,
                                env=harness.environment({**NO_OPENMP_SETTINGS, **(env or {})}), check=False,
                                stdin=subprocess.DEVNULL)
        self.assertEqual(result.returncode, 0, result.stderr)
        return json.loads(result.stdout)["threads"], result.stderr

    def pinned_to(self, log):
        return [line.split("pinned to CPUs ")[1] for line in log.splitlines() if "pinned to CPUs " in line]

    def test_a_thread_for_each_core_that_the_affinity_allows(self):
        cpus = one_cpu_a_core()
        for count in (1, 2):
            if count > len(cpus):
                self.skipTest("one core only")
            allowed = cpus[-count:]
            threads, log = self.run_with(["taskset", "-c", ",".join(map(str, allowed))])
            self.assertEqual(threads, count)
            self.assertEqual(self.pinned_to(log), [", ".join(map(str, allowed))])

    def test_not_pinned_with_more_threads_than_cores_or_by_the_users_own_binding(self):
        cpu = str(one_cpu_a_core()[0])
        threads, log = self.run_with(["taskset", "-c", cpu], (*RUN, "--threads", "3"))
        self.assertEqual(threads, 3)
        self.assertIn("threads are not pinned: 3 threads on 1 cores", log)
        threads, log = self.run_with([], env={"OMP_PROC_BIND": "true"})
        self.assertEqual(threads, len(one_cpu_a_core()), "the main thread is bound, and all cores are there still")
        self.assertIn("OMP_PROC_BIND=true is set, and decides", log)

    def test_a_control_groups_quota(self):
        if len(one_cpu_a_core()) < 2:
            self.skipTest("one core only")
        for base, name, text in (("/sys/fs/cgroup/cpu", "cpu.cfs_quota_us", "100000"), ("/sys/fs/cgroup", "cpu.max", "100000 100000")):
            group = os.path.join(base, f"epmoe_test_{os.getpid()}")
            try:
                os.mkdir(group)
            except OSError:
                continue
            try:
                with open(os.path.join(group, name), "w", encoding="ascii") as file:
                    file.write(text)
            except OSError:  # no such controller here
                os.rmdir(group)
                continue
            self.addCleanup(remove_group, group)
            threads, _ = self.run_with(["sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$@"', "sh"])
            self.assertEqual(threads, 1)
            return
        self.skipTest("control groups cannot be made here")

    def test_ranks_that_share_cores_and_ranks_that_do_not(self):
        cpus = one_cpu_a_core()[:2]
        shared = ("0", "0")
        apart = tuple(map(str, cpus)) if len(cpus) == 2 else None
        for sets in filter(None, (shared, apart)):
            result = subprocess.run(
                [harness.OPTIONS.mpiexec, "-n", "2", "sh", "-c",
                 f'case "${{OMPI_COMM_WORLD_RANK:-$PMI_RANK}}" in 0) cpu={sets[0]} ;; *) cpu={sets[1]} ;; esac; '
                 f'exec taskset -c $cpu "$@"', "sh", *harness.command(0, *RUN)],
                capture_output=True, text=True, timeout=60, env=harness.environment(NO_OPENMP_SETTINGS), check=False,
                stdin=subprocess.DEVNULL)
            self.assertEqual(result.returncode, 0, result.stderr)
            if sets == shared:
                self.assertEqual(result.stderr.count("2 ranks of this node may run on the same cores"), 2, result.stderr)
            else:
                self.assertEqual(sorted(self.pinned_to(result.stderr)), sorted(sets), result.stderr)

    def test_more_ranks_than_cores_finish(self):
        ranks = min(2 * len(os.sched_getaffinity(0)), 8) + 1
        result = self.run_json(ranks, "run", "--tokens", "30", "--verify", env=NO_OPENMP_SETTINGS, timeout=120)
        self.assertEqual((result["ranks"], result["threads"]), (ranks, 1))


if __name__ == "__main__":
    harness.main()

#include "epmoe/core/cpu_limits.hpp"

#include <gtest/gtest.h>
#include <omp.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "core/affinity_mask.hpp"

namespace epmoe {
namespace {

namespace fs = std::filesystem;

/// A tree of files as /sys/fs/cgroup has them.
class CpuQuotaOf : public ::testing::Test {
 protected:
  void SetUp() override { fs::create_directories(root_); }
  void TearDown() override { fs::remove_all(root_); }
  void write(const std::string& path, const std::string& text) {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  [[nodiscard]] CpuQuota read(const std::string& self_cgroup) const {
    return read_cpu_quota(self_cgroup, root_.string());
  }
  [[nodiscard]] std::string at(const std::string& path) const { return root_.string() + path; }

  fs::path root_ = fs::temp_directory_path() / ("cpu_limits_test." + std::to_string(getpid()));
};

TEST_F(CpuQuotaOf, NoFilesNoLimit) {
  for (const char* groups : {"", "0::/\n", "0::/a/b\n", "1:cpu:/\n", "nonsense", "0:", "3:cpu\n", "0::\n"}) {
    EXPECT_EQ(read(groups).cpus, 0.0) << groups;
    EXPECT_EQ(read(groups).group, "") << groups;
  }
}

TEST_F(CpuQuotaOf, Version2TakesTheLowestOnTheWayUp) {
  write("pods/one/cpu.max", "400000 100000\n");
  write("pods/cpu.max", "150000 100000\n");
  write("cpu.max", "max 100000\n");
  EXPECT_EQ(read("0::/pods/one\n").cpus, 1.5);
  EXPECT_EQ(read("0::/pods/one\n").group, at("/pods"));
  EXPECT_EQ(read("0::/pods/two\n").cpus, 1.5) << "its own file is not there";
  EXPECT_EQ(read("0::/\n").cpus, 0.0);
  write("pods/one/cpu.max", "50000 200000\n");
  EXPECT_EQ(read("0::/pods/one\n").cpus, 0.25);
  EXPECT_EQ(read("0::/pods/one\n").group, at("/pods/one"));
  write("cpu.max", "20000 100000\n");  // as a container sees its own group
  EXPECT_EQ(read("0::/\n").cpus, 0.2);
  EXPECT_EQ(read("0::/not/shown\n").group, at(""));
}

TEST_F(CpuQuotaOf, Version2UnderUnifiedBesideVersion1) {
  write("unified/job/cpu.max", "300000 100000");
  write("cpu/job/cpu.cfs_quota_us", "200000\n");
  write("cpu/job/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(read("0::/job\n").cpus, 3.0);
  EXPECT_EQ(read("4:memory:/job\n0::/job\n1:cpu:/job\n").cpus, 2.0);
}

TEST_F(CpuQuotaOf, Version1) {
  write("cpu,cpuacct/job/cpu.cfs_quota_us", "250000\n");
  write("cpu,cpuacct/job/cpu.cfs_period_us", "50000\n");
  EXPECT_EQ(read("7:cpu,cpuacct:/job\n").cpus, 5.0);
  EXPECT_EQ(read("7:cpuset:/job\n8:cpuacct:/job\n").cpus, 0.0) << "other controllers limit something else";
  write("cpu/cpu.cfs_quota_us", "-1\n");
  write("cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(read("1:cpu:/\n").cpus, 0.0) << "-1 is no limit";
}

TEST_F(CpuQuotaOf, WhatIsNoNumberIsNoLimit) {
  for (const char* text : {"", "max", "max 100000", "100000", "0 100000", "100000 0", "x y", "-5 100000"}) {
    write("cpu.max", text);
    EXPECT_EQ(read("0::/\n").cpus, 0.0) << text;
  }
}

CpuLimits limits(std::vector<UsableCpu> cpus, double quota = 0.0) {
  CpuLimits made;
  made.cpus = std::move(cpus);
  made.quota.cpus = quota;
  return made;
}

TEST(CpuLimits, OneThreadACoreWithinTheQuota) {
  const std::vector<UsableCpu> cpus{{0, 0, 0}, {1, 1, 0}, {2, 2, 1}, {3, 3, 1},
                                    {4, 0, 0}, {5, 1, 0}, {6, 2, 1}, {7, 3, 1}};
  EXPECT_EQ(limits(cpus).cores(), 4);
  EXPECT_EQ(limits(cpus).threads(), 4);
  for (const auto& [quota, threads] : {std::pair{0.2, 1}, {1.0, 1}, {1.9, 1}, {2.0, 2}, {3.999, 4}, {16.0, 4}})
    EXPECT_EQ(limits(cpus, quota).threads(), threads) << quota;
  EXPECT_EQ(limits({{3, 3, 0}}).threads(), 1);
}

TEST(CpuLimits, WorkersGetACoreEachNodeByNode) {
  // Numbered the way servers do: both hyperthreads of a core far apart, nodes alternating.
  const auto all = limits({{0, 0, 0}, {1, 1, 1}, {2, 2, 0}, {3, 3, 1}, {4, 0, 0}, {5, 1, 1}, {6, 2, 0}, {7, 3, 1}});
  EXPECT_EQ(worker_cpus(all, 1), (std::vector<int>{0}));
  EXPECT_EQ(worker_cpus(all, 3), (std::vector<int>{0, 2, 1}));
  EXPECT_EQ(worker_cpus(all, 4), (std::vector<int>{0, 2, 1, 3}));
  EXPECT_TRUE(worker_cpus(all, 5).empty());
  // Of what a launcher left: the second hyperthreads only, then both of one core.
  EXPECT_EQ(worker_cpus(limits({{6, 2, 0}, {7, 3, 1}}), 2), (std::vector<int>{6, 7}));
  EXPECT_TRUE(worker_cpus(limits({{2, 2, 0}, {6, 2, 0}}), 2).empty());
}

TEST(CpuLimits, FollowTheAffinityOfTheThread) {
  if (omp_get_proc_bind() != omp_proc_bind_false) GTEST_SKIP() << "the OpenMP run-time binds threads itself";
  const auto all = AffinityMask::of_this_thread().cpus();
  ASSERT_FALSE(all.empty());
  std::vector<int> seen;
  for (const UsableCpu& cpu : read_cpu_limits().cpus) seen.push_back(cpu.cpu);
  EXPECT_EQ(seen, all);
  EXPECT_GE(read_cpu_limits().machine_cores, read_cpu_limits().cores());
  CpuLimits one;
  bool applied = false;
  std::thread([&] {
    applied = AffinityMask::only(all.back()).apply();
    one = read_cpu_limits();
  }).join();
  ASSERT_TRUE(applied);
  ASSERT_EQ(one.cpus.size(), 1U);
  EXPECT_EQ(one.cpus.front().cpu, all.back());
  EXPECT_EQ(one.threads(), 1);
  EXPECT_EQ(AffinityMask::of_this_thread().cpus(), all) << "another thread's affinity is its own";
}

TEST(AffinityMask, CountsBeyondOneSetOfCpus) {
  EXPECT_EQ(AffinityMask::only(0).cpus(), std::vector<int>{0});
  EXPECT_EQ(AffinityMask::only(5000).cpus(), std::vector<int>{5000});
  EXPECT_FALSE(AffinityMask::only(500'000).apply()) << "no machine here has that CPU";
}

}  // namespace
}  // namespace epmoe

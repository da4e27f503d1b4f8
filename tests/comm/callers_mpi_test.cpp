#include <gtest/gtest.h>

#include <cstring>
#include <thread>

#include "epmoe/comm/request_set.hpp"
#include "epmoe/comm/step_plan.hpp"
#include "epmoe/mpi.hpp"
#include "support/world.hpp"

namespace epmoe::comm {
namespace {

TEST(FromMpi, DuplicatesTheCallersCommunicator) {
  test::TestContext context;
  MPI_Comm half = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, test::world_rank() % 2, -test::world_rank(), &half);
  int rank = -1;
  int size = 0;
  MPI_Comm_rank(half, &rank);
  MPI_Comm_size(half, &size);
  const auto ours = from_mpi(half);
  MPI_Comm_free(&half);  // ours does not depend on it
  EXPECT_EQ(ours.rank(), rank);
  EXPECT_EQ(ours.size(), size);
  const auto group = ExpertGroup::create(ours, {}, context);
  EXPECT_EQ(agree_step(*group, {.step = 1, .tokens = 2}, context).total_tokens(), 2 * size);
}

TEST(FromMpi, RefusesWhatHasNoGroupOfItsOwn) {
  EXPECT_THROW((void)from_mpi(MPI_COMM_NULL), InputError);
  if (test::world_size() < 2) return;
  const int side = test::world_rank() == 0 ? 0 : 1;
  MPI_Comm local = MPI_COMM_NULL;
  MPI_Comm inter = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, side, 0, &local);
  MPI_Intercomm_create(local, 0, MPI_COMM_WORLD, side == 0 ? 1 : 0, 77, &inter);
  EXPECT_THROW((void)from_mpi(inter), InputError);
  MPI_Comm_free(&inter);
  MPI_Comm_free(&local);
}

TEST(CallersTraffic, NeverMeetsOurs) {
  test::TestContext context;
  const auto group = test::world_group(context);
  const int next = (group->rank() + 1) % group->size();
  const int before = (group->rank() + group->size() - 1) % group->size();
  for (int round = 0; round < 20; ++round) {
    const int tag = make_tag(TagPhase::dispatch, static_cast<std::uint64_t>(round));
    int theirs_in[16] = {};  // 64 bytes, the same tag and peers as ours, wildcards included
    int theirs_out[16] = {1000 + group->rank() + round};
    int sum = 0;
    const int one = group->rank() + 1;
    MPI_Request theirs[3];
    MPI_Irecv(theirs_in, 16, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &theirs[0]);
    MPI_Iallreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &theirs[1]);
    std::vector<std::byte> in(64);
    std::vector<std::byte> out(64, static_cast<std::byte>(group->rank() * 8 + 1));
    RequestSet ours(group->communicator());
    ours.receive(in.data(), 1, before, tag);
    ours.send(out.data(), 1, next, tag);
    MPI_Isend(theirs_out, 16, MPI_INT, next, tag, MPI_COMM_WORLD, &theirs[2]);
    const auto plan = agree_step(*group, {.step = static_cast<std::uint64_t>(round), .tokens = 1}, context);
    EXPECT_EQ(plan.total_tokens(), group->size());
    while (!ours.poll()) std::this_thread::yield();
    MPI_Waitall(3, theirs, MPI_STATUSES_IGNORE);
    EXPECT_EQ(theirs_in[0], 1000 + before + round);
    EXPECT_EQ(in[63], static_cast<std::byte>(before * 8 + 1));
    EXPECT_EQ(sum, group->size() * (group->size() + 1) / 2);
  }
}

}  // namespace
}  // namespace epmoe::comm

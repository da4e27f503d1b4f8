#include "epmoe/comm/request_set.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <thread>

#include "epmoe/comm/message_header.hpp"
#include "support/world.hpp"

namespace epmoe::comm {
namespace {

using ::testing::HasSubstr;
using Blocks = std::vector<std::byte>;

Blocks blocks(std::int64_t count, int fill = 0) {
  return Blocks(static_cast<std::size_t>(count * kBlockBytes), static_cast<std::byte>(fill));
}

void finish(RequestSet& requests) {
  while (!requests.poll()) std::this_thread::yield();
}

template <class Call>
std::string comm_error(Call&& call) {
  try {
    call();
  } catch (const CommError& e) {
    return e.what();
  }
  return "no CommError";
}

TEST(RequestSet, MessagesWithHeaderAreShorterThanTheirReceives) {
  const auto world = Communicator::world();
  const int me = world.rank();
  const int ranks = world.size();
  RequestSet requests(world);
  std::vector<Blocks> in(static_cast<std::size_t>(ranks), blocks(20, 0xee));
  std::vector<Blocks> out;
  std::vector<int> receives;
  for (int peer = 0; peer < ranks; ++peer)
    receives.push_back(
        requests.receive(in[static_cast<std::size_t>(peer)].data(), 20, peer, make_tag(TagPhase::dispatch, 8190)));
  for (int peer = 0; peer < ranks; ++peer) {
    const std::int64_t rows = (me + peer) % 5;  // zero rows still send the header
    out.push_back(blocks(1 + rows * 3, 16 * me + peer));
    MessageHeader header;
    header.source = me;
    header.rows = rows;
    std::memcpy(out.back().data(), &header, sizeof(header));
  }
  for (int peer = 0; peer < ranks; ++peer) {
    const auto& message = out[static_cast<std::size_t>(peer)];
    requests.send(message.data(), static_cast<std::int64_t>(message.size()) / kBlockBytes, peer,
                  make_tag(TagPhase::dispatch, 8190));
  }
  EXPECT_EQ(requests.pending(), 2 * ranks);
  EXPECT_EQ(live_handles().requests, 2 * ranks);
  finish(requests);
  EXPECT_TRUE(requests.all_done());
  EXPECT_TRUE(requests.pending_peers().empty());
  for (int peer = 0; peer < ranks; ++peer) {
    const auto p = static_cast<std::size_t>(peer);
    const std::int64_t rows = (me + peer) % 5;
    EXPECT_TRUE(requests.done(receives[p]));
    EXPECT_EQ(requests.peer(receives[p]), peer);
    EXPECT_EQ(requests.received_blocks(receives[p]), 1 + 3 * rows);
    MessageHeader header;
    std::memcpy(&header, in[p].data(), sizeof(header));
    EXPECT_EQ(header.source, peer);
    EXPECT_EQ(header.rows, rows);
    for (std::size_t b = 64; b < in[p].size(); ++b)
      if (in[p][b] != static_cast<std::byte>(b < static_cast<std::size_t>(64 + rows * 192) ? 16 * peer + me : 0xee)) {
        ADD_FAILURE() << "byte " << b << " from rank " << peer;
        break;
      }
  }
}

TEST(RequestSet, MessagesWithoutAnyBlockArrive) {
  const auto world = Communicator::world();
  RequestSet requests(world);
  const int next = (world.rank() + 1) % world.size();
  const int before = (world.rank() + world.size() - 1) % world.size();
  const int receive = requests.receive(nullptr, 0, before, 3);
  requests.send(nullptr, 0, next, 3);
  finish(requests);
  EXPECT_EQ(requests.received_blocks(receive), 0);
}

TEST(RequestSet, LargeMessagesArrive) {
  const auto world = Communicator::world();
  RequestSet requests(world);
  const int next = (world.rank() + 1) % world.size();
  const int before = (world.rank() + world.size() - 1) % world.size();
  constexpr std::int64_t kBlocks = (4 << 20) / kBlockBytes + 1;
  auto in = blocks(kBlocks);
  const auto out = blocks(kBlocks, world.rank() + 1);
  const int receive = requests.receive(in.data(), kBlocks, before, 4);
  requests.send(out.data(), kBlocks, next, 4);
  finish(requests);
  EXPECT_EQ(requests.received_blocks(receive), kBlocks);
  EXPECT_EQ(in, blocks(kBlocks, before + 1));
}

TEST(RequestSet, GathersWithZeroCountsAndGaps) {
  const auto world = Communicator::world();
  const int ranks = world.size();
  for (int round = 0; round < 3; ++round) {
    // Rank r brings (r + round) % 3 blocks; one block is left free after each.
    std::vector<std::int64_t> counts;
    std::vector<std::int64_t> displacements;
    std::int64_t total = 0;
    for (int r = 0; r < ranks; ++r) {
      counts.push_back((r + round) % 3);
      displacements.push_back(total);
      total += counts.back() + 1;
    }
    const std::int64_t own = counts[static_cast<std::size_t>(world.rank())];
    const auto mine = blocks(own, 10 + world.rank());
    auto all = blocks(total, 0xcc);
    {
      RequestSet requests(world);
      const auto counts_gone = std::make_unique<std::vector<std::int64_t>>(counts);  // copied inside
      const int gather = requests.all_gather(mine.data(), own, all.data(), *counts_gone, displacements);
      EXPECT_EQ(requests.peer(gather), -1);
      finish(requests);
      EXPECT_TRUE(requests.done(gather));
    }
    auto expected = blocks(total, 0xcc);
    for (int r = 0; r < ranks; ++r) {
      const auto begin = expected.begin() + displacements[static_cast<std::size_t>(r)] * kBlockBytes;
      std::fill_n(begin, counts[static_cast<std::size_t>(r)] * kBlockBytes, static_cast<std::byte>(10 + r));
    }
    EXPECT_EQ(all, expected) << "round " << round;
  }
}

TEST(RequestSet, PendingPeersAreNamed) {
  const auto world = Communicator::world();
  if (world.size() < 2) GTEST_SKIP();
  RequestSet requests(world);
  auto a = blocks(1);
  auto b = blocks(1);
  const int peer = (world.rank() + 1) % world.size();
  requests.receive(a.data(), 1, peer, 11);
  requests.receive(b.data(), 1, peer, 12);
  EXPECT_FALSE(requests.poll());
  EXPECT_EQ(requests.pending_peers(), std::vector<int>{peer});
  EXPECT_EQ(requests.pending(), 2);
  // Dropped here: both receives are cancelled and their handles freed.
}

TEST(RequestSet, AForgottenSetIsCountedOut) {
  const auto world = Communicator::world();
  auto kept = blocks(1);  // MPI still writes here
  RequestSet requests(world);
  requests.receive(kept.data(), 1, world.rank(), 21);
  EXPECT_EQ(live_handles().requests, 1);
  requests.leak();
  EXPECT_EQ(live_handles().requests, 0);
  EXPECT_TRUE(requests.all_done());
  RequestSet last(world);  // ends the receive, so that nothing is pending when the communicator goes
  const auto out = blocks(1, 9);
  last.send(out.data(), 1, world.rank(), 21);
  finish(last);
  EXPECT_EQ(kept, out);
}

TEST(RequestSet, ATooLongMessageNamesItsSender) {
  const auto world = Communicator::world();
  if (world.size() < 2) GTEST_SKIP() << "Open MPI 4.1 cuts messages to oneself without an error";
  RequestSet requests(world);
  const int next = (world.rank() + 1) % world.size();
  const int before = (world.rank() + world.size() - 1) % world.size();
  auto in = blocks(1);
  auto fine = blocks(1);
  const auto out = blocks(2, 7);
  requests.receive(in.data(), 1, before, 31);
  const int second = requests.receive(fine.data(), 1, before, 32);
  requests.send(out.data(), 2, next, 31);
  requests.send(out.data(), 1, next, 32);
  std::string error = "none";
  int rank = -1;
  for (bool ended = false; !ended;) try {
      ended = requests.poll();
      std::this_thread::yield();
    } catch (const CommError& e) {
      error = e.what();
      rank = e.rank();
    }
  EXPECT_THAT(error, HasSubstr("rank " + std::to_string(world.rank()) + ": receive of up to 1 blocks from rank " +
                               std::to_string(before) + " (tag 31)"));
  EXPECT_EQ(rank, before);
  EXPECT_EQ(requests.received_blocks(second), 1) << "the others end all the same";
}

TEST(RequestSet, CountsBeyondIntAreRefusedBeforeTheyReachMpi) {
  const auto world = Communicator::world();
  RequestSet requests(world);
  constexpr std::int64_t kMost = std::numeric_limits<int>::max();
  EXPECT_THAT(comm_error([&] { requests.receive(nullptr, kMost + 1, 0, 1); }),
              HasSubstr("blocks: found 2147483648, wanted 0 to 2147483647"));
  EXPECT_THAT(comm_error([&] { requests.send(nullptr, 1LL << 40, 0, 1); }), HasSubstr("found 1099511627776"));
  EXPECT_THAT(comm_error([&] { requests.send(nullptr, -1, 0, 1); }), HasSubstr("found -1"));
  EXPECT_THAT(comm_error([&] { requests.send(nullptr, 0, world.size(), 1); }), HasSubstr("peer: found"));
  std::vector<std::int64_t> counts(static_cast<std::size_t>(world.size()), 0);
  std::vector<std::int64_t> displacements = counts;
  displacements.back() = kMost + 1;
  EXPECT_THAT(comm_error([&] { requests.all_gather(nullptr, 0, nullptr, counts, displacements); }),
              HasSubstr("displacement: found 2147483648"));
  displacements.back() = 0;
  counts.back() = kMost + 1;
  EXPECT_THAT(comm_error([&] { requests.all_gather(nullptr, 0, nullptr, counts, displacements); }),
              HasSubstr("count: found 2147483648"));
  counts.push_back(0);
  EXPECT_THAT(comm_error([&] { requests.all_gather(nullptr, 0, nullptr, counts, displacements); }), HasSubstr("each"));
  EXPECT_EQ(requests.pending(), 0);
  EXPECT_EQ(live_handles().requests, 0);
}

TEST(RequestSet, TagsStayBelowTheLeastUpperBoundOfMpi) {
  for (const auto phase : {TagPhase::dispatch, TagPhase::combine, TagPhase::control})
    for (const std::uint64_t call : {std::uint64_t{0}, std::uint64_t{8190}, std::uint64_t{8191}, ~std::uint64_t{0}}) {
      EXPECT_GE(make_tag(phase, call), 0);
      EXPECT_LT(make_tag(phase, call), 32767);
    }
  EXPECT_NE(make_tag(TagPhase::dispatch, 8190), make_tag(TagPhase::combine, 0));
}

}  // namespace
}  // namespace epmoe::comm

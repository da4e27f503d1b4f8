#include "epmoe/comm/communicator.hpp"

#include <fmt/format.h>

#include "comm/native.hpp"

namespace epmoe::comm {
namespace {

Communicator dup(MPI_Comm comm) {
  MPI_Comm copy = MPI_COMM_NULL;
  check(MPI_Comm_dup(comm, &copy), "MPI_Comm_dup");
  return Communicator(std::make_unique<Communicator::Native>(copy));
}

}  // namespace

Communicator Communicator::world() {
  require_mpi();
  return dup(MPI_COMM_WORLD);
}

Communicator Communicator::self() {
  require_mpi();
  return dup(MPI_COMM_SELF);
}

Communicator::Communicator(std::unique_ptr<Native> native) : native_(std::move(native)) {}
Communicator::Communicator(Communicator&&) noexcept = default;
Communicator& Communicator::operator=(Communicator&&) noexcept = default;
Communicator::~Communicator() = default;

int Communicator::rank() const {
  return native_->rank;
}
int Communicator::size() const {
  return native_->size;
}

Communicator Communicator::duplicate() const {
  auto copy = dup(native_->comm);
  copy.native_->message_bytes = native_->message_bytes;
  return copy;
}

Communicator Communicator::split(int color, int key) const {
  MPI_Comm part = MPI_COMM_NULL;
  check(MPI_Comm_split(native_->comm, color < 0 ? MPI_UNDEFINED : color, key, &part), "MPI_Comm_split");
  return part == MPI_COMM_NULL ? self() : Communicator(std::make_unique<Native>(part));
}

Communicator Communicator::split_node() const {
  MPI_Comm node = MPI_COMM_NULL;
  check(MPI_Comm_split_type(native_->comm, MPI_COMM_TYPE_SHARED, native_->rank, MPI_INFO_NULL, &node),
        "MPI_Comm_split_type");
  return Communicator(std::make_unique<Native>(node));
}

void Communicator::leak() {
  native_->leak();
}

void Communicator::limit_message_bytes(std::int64_t bytes) {
  if (bytes < 1 || bytes > (1LL << 30))
    throw ConfigError(fmt::format("message bytes: found {}, wanted 1 to {}", bytes, 1LL << 30));
  native_->message_bytes = bytes;
}

}  // namespace epmoe::comm

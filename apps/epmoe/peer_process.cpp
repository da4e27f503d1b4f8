#include "peer_process.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <thread>

#include "epmoe/core/error.hpp"

extern char** environ;  // NOLINT: POSIX wants it declared by the program

namespace epmoe::cli {
namespace {

constexpr int kPatienceMs = 600'000;  // building a peer and packing a large layer take minutes
constexpr int kEndingMs = 5'000;

}  // namespace

PeerProcess::PeerProcess(std::string command) : command_(std::move(command)) {
  // A socket and not two pipes: writing to a peer that is gone is then an error instead of a signal.
  std::array<int, 2> ends{};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) fail(std::strerror(errno));
  socket_ = ends[0];
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  std::string shell = "sh", flag = "-c", line = command_;
  std::array<char*, 4> arguments{shell.data(), flag.data(), line.data(), nullptr};
  const int error = posix_spawn(&process_, "/bin/sh", &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  if (error == 0) return;
  close(socket_);
  fail(std::strerror(error));
}

PeerProcess::~PeerProcess() {
  close(socket_);
  if (process_ < 0) return;
  for (int waited = 0; waitpid(process_, nullptr, WNOHANG) == 0; waited += 10) {
    if (waited >= kEndingMs) kill(process_, SIGKILL);
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

void PeerProcess::fail(const std::string& what) const {
  throw ConfigError(fmt::format("--peer {}: {}", command_, what));
}

nlohmann::json PeerProcess::ask(const nlohmann::json& question) {
  const auto what = question.at("ask").get<std::string>();
  send_line(question.dump() + "\n");
  const std::string line = receive_line(what);
  auto answer = nlohmann::json::parse(line, nullptr, false);
  if (!answer.is_object()) fail(fmt::format("asked for {}, found '{}', wanted one JSON object", what, line));
  return answer;
}

void PeerProcess::send_line(const std::string& line) const {
  for (std::size_t sent = 0; sent < line.size();) {
    const auto n = send(socket_, line.data() + sent, line.size() - sent, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return;  // it is gone; reading finds that, too, and how it ended
    sent += static_cast<std::size_t>(n);
  }
}

std::string PeerProcess::receive_line(const std::string& question) {
  for (;;) {
    if (const auto end = received_.find('\n'); end != std::string::npos) {
      std::string line = received_.substr(0, end);
      received_.erase(0, end + 1);
      return line;
    }
    pollfd waiting{socket_, POLLIN, 0};
    const int ready = poll(&waiting, 1, kPatienceMs);
    if (ready < 0 && errno == EINTR) continue;
    if (ready == 0) fail(fmt::format("asked for {}, no answer within {} s", question, kPatienceMs / 1000));
    std::array<char, 4096> bytes;
    const auto n = recv(socket_, bytes.data(), bytes.size(), 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) fail(fmt::format("asked for {}, it {}", question, ending()));
    received_.append(bytes.data(), static_cast<std::size_t>(n));
  }
}

/// How the process ended after it closed its stdout.
std::string PeerProcess::ending() {
  int status = 0;
  for (int waited = 0; waited < kEndingMs; waited += 10) {
    if (waitpid(process_, &status, WNOHANG) == process_) {
      process_ = -1;
      return WIFEXITED(status) ? fmt::format("ended with exit code {}", WEXITSTATUS(status))
                               : fmt::format("ended by signal {}", WTERMSIG(status));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return "closed its output";
}

}  // namespace epmoe::cli

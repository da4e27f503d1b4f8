#pragma once
#include <sys/types.h>

#include <nlohmann/json.hpp>
#include <string>

namespace epmoe::cli {

/// Another program that answers questions: one JSON object a line to its stdin, one a line from its stdout. What it
/// says on stderr goes where ours goes. It has to end when its stdin ends.
class PeerProcess {
 public:
  /// Starts `command` through the shell. Throws ConfigError if there is no shell or no socket.
  explicit PeerProcess(std::string command);
  ~PeerProcess();
  PeerProcess(const PeerProcess&) = delete;
  PeerProcess& operator=(const PeerProcess&) = delete;

  [[nodiscard]] const std::string& command() const { return command_; }
  /// Throws ConfigError naming the command and the question when it ends, says nothing for ten minutes, or answers
  /// with something else than one JSON object.
  nlohmann::json ask(const nlohmann::json& question);
  /// ConfigError about an answer: "--peer COMMAND: …".
  [[noreturn]] void fail(const std::string& what) const;

 private:
  void send_line(const std::string& line) const;
  std::string receive_line(const std::string& question);
  std::string ending();

  std::string command_;
  pid_t process_ = -1;
  int socket_ = -1;
  std::string received_;  // beyond the last line
};

}  // namespace epmoe::cli

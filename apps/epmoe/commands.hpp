#pragma once
#include <functional>

namespace CLI {
class App;
}

/// A file per subcommand. Each adds its flags to the command line and returns what runs it.
namespace epmoe::cli {

class Job;
using Command = std::function<int(Job&)>;

Command add_run(CLI::App& app);
Command add_synth(CLI::App& app);
Command add_bench(CLI::App& app);

}  // namespace epmoe::cli

#pragma once
#include "bench_options.hpp"
#include "job.hpp"

namespace epmoe::cli {

/// Measures the experts stage against the machine's limits. Refuses more than one rank. Returns the exit code: 1 when
/// a result is not what the f64 reference says.
int bench_experts(Job& job, const BenchExpertsOptions& options);

}  // namespace epmoe::cli

// Runs models for tools/bench_models.py, which asks in lines on stdin and gets a line of JSON for
// each: `load MODEL WAY`, `run COUNT`, `memory`. `bench_models ENGINE` serves one engine;
// `bench_models --write FOLDER` writes the numbers that all engines start from.

#include <ATen/Parallel.h>
#include <ahead/ahead.h>
#include <sys/resource.h>

#include <cmath>
#include <cstdio>
#include <exception>
#include <fstream>
#include <iostream>
#include <optional>
#include <sstream>

#include "engines.h"
#include "models/memory.h"
#include "models/timing.h"

namespace {

using at::Tensor;
using models::Workload;

constexpr int kThreads = 2;
/// Losses are compared after as many steps.
constexpr int kSteps = 4;

/// One line about each tensor and an empty one, then their bytes.
void write_numbers(const std::string& folder) {
  for (const std::string& name : models::speed_models()) {
    const Workload workload = models::speed_workload(name);
    std::ofstream file(folder + "/" + name + ".numbers", std::ios::binary);
    std::vector<Tensor> all = workload.parameters;
    all.insert(all.end(), workload.inputs.begin(), workload.inputs.end());
    for (size_t i = 0; i < all.size(); ++i) {
      file << (i < workload.parameters.size() ? "parameter " : "input ")
           << (all[i].scalar_type() == at::kLong ? "int64" : "float32");
      for (const int64_t size : all[i].sizes()) file << ' ' << size;
      file << '\n';
    }
    file << '\n';
    for (const Tensor& tensor : all) {
      const Tensor dense = tensor.detach().contiguous();
      file.write(static_cast<const char*>(dense.const_data_ptr()),
                 static_cast<std::streamsize>(dense.nbytes()));
    }
    if (!file.flush()) throw std::runtime_error("cannot write to " + folder);
  }
}

double gradient_norm(const Workload& workload) {
  double sum = 0;
  for (const Tensor& parameter : workload.parameters)
    if (parameter.grad().defined())
      sum += parameter.grad().to(at::kDouble).pow(2).sum().item<double>();
  return std::sqrt(sum);
}

/// Seconds of processor time of all threads.
double processor_seconds() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

class Worker {
 public:
  explicit Worker(std::string engine) : engine_name_(std::move(engine)) {}

  std::string answer(const std::string& line) {
    std::istringstream words(line);
    std::string what;
    words >> what;
    if (what == "load") {
      std::string model, way;
      words >> model >> way;
      return load(model, way);
    }
    if (what == "run") {
      int64_t count = 0;
      words >> count;
      return run(count);
    }
    if (what == "memory") return memory();
    throw std::invalid_argument("cannot do " + line);
  }

 private:
  /// The seconds of the first call until the gradients of the first one that ran from graphs.
  std::string load(const std::string& model, const std::string& way) {
    engine_.reset();
    workload_.emplace(models::speed_workload(model));
    engine_ = make_engine(engine_name_, *workload_, way);
    int steps = 0;
    Tensor loss;
    const double first = models::milliseconds([&] {
      do {
        loss = engine_->step();
        ++steps;
      } while (engine_name_ != "eager" && engine_->hits() == 0 && steps < kSteps);
    });
    if (engine_name_ != "eager" && engine_->hits() == 0)
      throw std::runtime_error("no call ran from graphs");
    const int first_steps = steps;
    for (; steps < kSteps; ++steps) loss = engine_->step();
    std::ostringstream out;
    out.precision(17);
    out << "{\"loss\": " << loss.item<double>()
        << ", \"gradient_norm\": " << gradient_norm(*workload_)
        << ", \"first_seconds\": " << first * 1e-3 << ", \"first_steps\": " << first_steps << "}";
    return out.str();
  }

  std::string run(int64_t count) {
    const double before = processor_seconds();
    const double took = models::milliseconds([&] {
      for (int64_t i = 0; i < count; ++i) engine_->step();
    });
    std::ostringstream out;
    out << "{\"seconds\": " << took * 1e-3
        << ", \"processor_seconds\": " << processor_seconds() - before << "}";
    return out.str();
  }

  /// The most bytes of tensors of one step, beyond those that were there before. Gradients count,
  /// also where the ones of the step before are kept until then.
  std::string memory() {
    models::MemoryCounter counter;
    ahead::memory::release_kept();
    std::ostringstream out;
    int64_t peak = 0;
    // The last of a few: steps may have to get used to gradients that are gone.
    for (int i = 0; i < kSteps; ++i) {
      for (const Tensor& parameter : workload_->parameters) parameter.mutable_grad().reset();
      peak = counter.peak([&] { engine_->step(); });
    }
    out << "{\"peak_bytes\": " << peak << "}";
    return out.str();
  }

  std::string engine_name_;
  std::optional<Workload> workload_;
  std::unique_ptr<Engine> engine_;
};

/// What went wrong, in JSON.
std::string failure(const std::string& text) {
  std::string quoted;
  for (const char c : text.substr(0, text.find('\n'))) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
  }
  return "{\"failed\": \"" + quoted + "\"}";
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (arguments.size() == 2 && arguments[0] == "--write") {
    write_numbers(arguments[1]);
    return 0;
  }
  if (arguments.size() != 1) {
    std::fprintf(stderr, "usage: bench_models eager|interpreter|native | --write FOLDER\n");
    return 2;
  }
  at::set_num_threads(kThreads);
  Worker worker(arguments[0]);
  for (std::string line; std::getline(std::cin, line);) {
    try {
      std::cout << worker.answer(line) << std::endl;
    } catch (const std::exception& error) {
      std::cout << failure(error.what()) << std::endl;
    }
  }
}

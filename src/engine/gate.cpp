#include "engine/gate.h"

#include <torch/csrc/autograd/anomaly_mode.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/saved_variable_hooks.h>

#include <mutex>

#include "base/libtorch.h"
#include "engine/driver.h"

namespace ahead::engine {
namespace {

using torch::autograd::edge_list;
using torch::autograd::Engine;
using torch::autograd::GraphTask;
using torch::autograd::InputBuffer;
using torch::autograd::variable_list;
using Lock = std::unique_lock<std::mutex>;

/// What this thread holds on its way.
thread_local Lock* passing = nullptr;

class Passing {
 public:
  explicit Passing(Lock& lock) : outer_(std::exchange(passing, &lock)) {}
  ~Passing() { passing = outer_; }
  Passing(const Passing&) = delete;
  Passing& operator=(const Passing&) = delete;

 private:
  Lock* outer_;
};

/// Stands before the engine that was there.
class Gate final : public Engine {
 public:
  explicit Gate(Engine& behind) : behind_(behind) {}

  variable_list execute(const edge_list& roots, const variable_list& inputs, bool keep_graph,
                        bool create_graph, bool accumulate_grad,
                        const edge_list& outputs) override {
    static auto* mutex = new std::mutex;
    Lock lock(*mutex);
    const Passing scope(lock);
    return behind_.execute(roots, inputs, keep_graph, create_graph, accumulate_grad, outputs);
  }

  c10::intrusive_ptr<at::ivalue::Future> execute_with_graph_task(
      const std::shared_ptr<GraphTask>& task, NodePtr root, InputBuffer&& buffer) override {
    return behind_.execute_with_graph_task(task, std::move(root), std::move(buffer));
  }

  std::unique_ptr<torch::autograd::AnomalyMetadata> make_anomaly_metadata() override {
    return behind_.make_anomaly_metadata();
  }

  std::unique_ptr<torch::autograd::SavedVariableHooks> get_default_saved_variable_hooks() override {
    return behind_.get_default_saved_variable_hooks();
  }

 private:
  Engine& behind_;
};

Engine* gate = nullptr;

Engine& default_engine() {
  return *gate;
}

}  // namespace

void install_gate() {
  static std::once_flag once;
  std::call_once(once, [] {
    gate = new Gate(Engine::get_default_engine());
    torch::autograd::set_default_engine_stub(&default_engine);
    Engine::set_compiled_autograd(&run_backward);
  });
}

void open_gate() {
  if (passing != nullptr && passing->owns_lock()) passing->unlock();
}

}  // namespace ahead::engine

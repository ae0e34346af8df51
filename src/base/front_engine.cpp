#include "base/front_engine.h"

#include <atomic>
#include <mutex>

#include "base/libtorch.h"

namespace ahead::front_engine {
namespace {

using torch::autograd::Engine;
using torch::autograd::GraphTask;

std::atomic<Engine*> engine_behind{nullptr};
std::atomic<Gate> current_gate{nullptr};

Engine& behind() {
  return *engine_behind.load();
}

class FrontEngine final : public Engine {
 public:
  static FrontEngine& instance() {
    static auto* engine = new FrontEngine;
    return *engine;
  }

  torch::autograd::variable_list execute(const torch::autograd::edge_list& roots,
                                         const torch::autograd::variable_list& inputs,
                                         bool keep_graph, bool create_graph, bool accumulate_grad,
                                         const torch::autograd::edge_list& outputs) override {
    const BackwardCall call{roots, inputs, keep_graph, create_graph, accumulate_grad, outputs};
    const Gate gate = current_gate.load();
    return gate == nullptr ? call.run_in(behind()) : gate(behind(), call);
  }

  std::unique_ptr<torch::autograd::SavedVariableHooks> get_default_saved_variable_hooks() override {
    SavedTensorPacker* const own = packer();
    return own == nullptr ? behind().get_default_saved_variable_hooks() : own->make_hooks();
  }

  c10::intrusive_ptr<at::ivalue::Future> execute_with_graph_task(
      const std::shared_ptr<GraphTask>& task, NodePtr root,
      torch::autograd::InputBuffer&& buffer) override {
    return behind().execute_with_graph_task(task, std::move(root), std::move(buffer));
  }
  std::unique_ptr<torch::autograd::AnomalyMetadata> make_anomaly_metadata() override {
    return behind().make_anomaly_metadata();
  }
  void thread_on_exception(const std::shared_ptr<GraphTask>& task, const NodePtr& node,
                           std::exception& error) override {
    behind().thread_on_exception(task, node, error);
  }
  void thread_init(int device, const std::shared_ptr<torch::autograd::ReadyQueue>& queue,
                   bool should_increment) override {
    behind().thread_init(device, queue, should_increment);
  }
};

Engine& front() {
  return FrontEngine::instance();
}

}  // namespace

/// Another library (Python's) may have put an engine of its own there in the meantime.
void ensure_installed() {
  if (&Engine::get_default_engine() == &front()) return;
  static auto* mutex = new std::mutex;
  std::lock_guard<std::mutex> lock(*mutex);
  Engine& engine = Engine::get_default_engine();
  if (&engine == &front()) return;
  engine_behind.store(&engine);
  torch::autograd::set_default_engine_stub(&front);
}

SavedTensorPacker*& packer() {
  thread_local SavedTensorPacker* current = nullptr;
  return current;
}

void set_gate(Gate gate) {
  current_gate.store(gate);
}

}  // namespace ahead::front_engine

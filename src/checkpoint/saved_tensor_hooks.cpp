#include "checkpoint/saved_tensor_hooks.h"

#include <torch/csrc/autograd/engine.h>

#include <atomic>
#include <mutex>

#include "base/libtorch.h"

namespace ahead::runtime {
namespace {

using torch::autograd::Engine;

thread_local SavedTensorPacker* current_packer = nullptr;

std::atomic<Engine*> real_engine{nullptr};

/// What LibTorch asks, on a thread with a packer, for the hooks of tensors to be saved. It runs
/// nothing itself.
class PackingEngine final : public Engine {
 public:
  static PackingEngine& instance() {
    static auto* engine = new PackingEngine;
    return *engine;
  }

  std::unique_ptr<torch::autograd::SavedVariableHooks> get_default_saved_variable_hooks() override {
    return current_packer->make_hooks();
  }

  torch::autograd::variable_list execute(const torch::autograd::edge_list& roots,
                                         const torch::autograd::variable_list& inputs,
                                         bool keep_graph, bool create_graph, bool accumulate_grad,
                                         const torch::autograd::edge_list& outputs) override {
    return real().execute(roots, inputs, keep_graph, create_graph, accumulate_grad, outputs);
  }
  c10::intrusive_ptr<at::ivalue::Future> execute_with_graph_task(
      const std::shared_ptr<torch::autograd::GraphTask>& graph_task, NodePtr graph_root,
      torch::autograd::InputBuffer&& input_buffer) override {
    return real().execute_with_graph_task(graph_task, std::move(graph_root),
                                          std::move(input_buffer));
  }
  std::unique_ptr<torch::autograd::AnomalyMetadata> make_anomaly_metadata() override {
    return real().make_anomaly_metadata();
  }
  void thread_on_exception(const std::shared_ptr<torch::autograd::GraphTask>& graph_task,
                           const NodePtr& node, std::exception& error) override {
    real().thread_on_exception(graph_task, node, error);
  }
  void thread_init(int device, const std::shared_ptr<torch::autograd::ReadyQueue>& queue,
                   bool should_increment) override {
    real().thread_init(device, queue, should_increment);
  }

 private:
  static Engine& real() { return *real_engine.load(); }
};

Engine& choose_engine() {
  return current_packer == nullptr ? *real_engine.load()
                                   : static_cast<Engine&>(PackingEngine::instance());
}

/// LibTorch asks its default engine for hooks. Another library (Python's) may have put an engine of
/// its own there in the meantime.
void ensure_installed() {
  if (&Engine::get_default_engine() == &PackingEngine::instance()) return;
  static std::mutex mutex;
  std::lock_guard<std::mutex> lock(mutex);
  Engine& engine = Engine::get_default_engine();
  if (&engine == &PackingEngine::instance()) return;
  real_engine.store(&engine);
  torch::autograd::set_default_engine_stub(choose_engine);
}

}  // namespace

PackerScope::PackerScope(SavedTensorPacker& packer)
    : outer_(std::exchange(current_packer, &packer)) {
  ensure_installed();
}

PackerScope::~PackerScope() {
  current_packer = outer_;
}

PackerScope::Pause::Pause() : paused_(std::exchange(current_packer, nullptr)) {}

PackerScope::Pause::~Pause() {
  current_packer = paused_;
}

bool PackerScope::is_active() {
  return current_packer != nullptr;
}

}  // namespace ahead::runtime

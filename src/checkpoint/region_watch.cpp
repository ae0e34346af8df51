#include "checkpoint/region_watch.h"

#include <ATen/core/grad_mode.h>
#include <ATen/record_function.h>

#include <algorithm>
#include <utility>

#include "base/front_engine.h"
#include "base/thread_object.h"
#include "checkpoint/operator_calls.h"
#include "ops/facts/facts.h"
#include "tensors/version_of.h"

namespace ahead::runtime {
namespace {

/// Whether the tensor has memory of which a copy can be made; those of a trace have none.
bool is_real(const at::Tensor& tensor) {
  constexpr c10::DispatchKeySet traced{c10::DispatchKey::Fake, c10::DispatchKey::Functionalize};
  return tensor.has_storage() && !tensor.is_meta() && !tensor.key_set().has_any(traced);
}

/// All bytes of a storage, as a tensor with a version of its own.
at::Tensor bytes_of(const c10::Storage& storage) {
  const c10::DispatchKey key = c10::computeDispatchKey(at::kByte, std::nullopt, storage.device());
  at::Tensor bytes = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(storage), c10::DispatchKeySet(key), caffe2::TypeMeta::Make<uint8_t>());
  bytes.unsafeGetTensorImpl()->set_sizes_contiguous(static_cast<int64_t>(storage.nbytes()));
  return bytes;
}

void lay_out(const at::Tensor& tensor, at::IntArrayRef sizes, at::IntArrayRef strides,
             int64_t offset) {
  if (tensor.sizes() == sizes && tensor.strides() == strides && tensor.storage_offset() == offset)
    return;
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides, offset);
}

std::vector<RegionWatch*>& watches() {
  return thread_object<std::vector<RegionWatch*>, struct RegionWatches>();
}
/// The storages of the operands of the operators that are running, outermost first.
std::vector<const std::vector<const c10::StorageImpl*>*>& running() {
  using Running = std::vector<const std::vector<const c10::StorageImpl*>*>;
  return thread_object<Running, struct RunningOperators>();
}
thread_local size_t num_watches = 0;  ///< those that are paused included
thread_local at::CallbackHandle callback = at::INVALID_CALLBACK_HANDLE;

}  // namespace

void OutsideTensors::check_unwritten() const {
  for (const Read& read : reads_) {
    if (read.counter.current_version() == read.version || is_written(read.storage)) continue;
    TORCH_CHECK(false,
                "one of the variables needed for gradient computation has been modified by an "
                "inplace operation: ",
                read.meta.str(),
                ", which a checkpointed function reads and would read again now, is at version ",
                read.counter.current_version(), "; expected version ", read.version, " instead.");
  }
}

bool OutsideTensors::is_written(const c10::StorageImpl* storage) const {
  return std::any_of(storages_.begin(), storages_.end(), [&](const WrittenStorage& written) {
    return written.storage.unsafeGetStorageImpl() == storage;
  });
}

OutsideTensors::Kept::Kept(at::Tensor tensor, const Met& met)
    : tensor_(std::move(tensor)),
      sizes_(tensor_.sizes().vec()),
      strides_(tensor_.strides().vec()),
      offset_(tensor_.storage_offset()) {
  // Views are brought up to date by that.
  history_ = tensor_.grad_fn();
  lay_out(tensor_, met.sizes, met.strides, met.offset);
  const auto* meta = torch::autograd::impl::get_autograd_meta(tensor_);
  if (meta == nullptr) return;
  output_nr_ = meta->output_nr_;
  hooks_ = meta->cpp_hooks_list_;
  if (const auto* view = torch::autograd::impl::get_view_autograd_meta(tensor_))
    attr_version_ = view->has_bw_view() ? view->get_attr_version() : 0;
}

/// LibTorch takes a retained gradient along to the new history, and forgets hooks.
void OutsideTensors::Kept::restore() const {
  lay_out(tensor_, sizes_, strides_, offset_);
  auto* meta = torch::autograd::impl::get_autograd_meta(tensor_);
  if (meta == nullptr) return;
  if (meta->grad_fn_ != history_) {
    // Changes of shape in place leave it where it is.
    if (history_ && meta->grad_fn_ && tensor_.retains_grad()) {
      if (auto hook = meta->grad_fn_->pop_retains_grad_hook(meta->output_nr_))
        history_->add_retains_grad_hook(std::move(hook), output_nr_);
    }
    meta->grad_fn_ = history_;
    meta->output_nr_ = output_nr_;
    meta->cpp_hooks_list_ = hooks_;
  }
  auto* view = torch::autograd::impl::get_view_autograd_meta(tensor_);
  if (view != nullptr && view->has_bw_view()) view->set_attr_version(attr_version_);
}

OutsideTensors::Rewind::Rewind(const OutsideTensors& outside) : outside_(outside) {
  // A tensor may have been met several times, of which the first counts.
  for (auto met = outside_.rebased_.rbegin(); met != outside_.rebased_.rend(); ++met) {
    if (auto tensor = met->tensor.lock()) kept_.emplace_back(at::Tensor(std::move(tensor)), *met);
  }
  at::NoGradGuard no_grad;
  for (const WrittenStorage& written : outside_.storages_) {
    at::Tensor bytes = bytes_of(written.storage);
    contents_.push_back(bytes.clone());
    bytes.copy_(written.contents);
  }
  for (const WrittenVersion& written : outside_.versions_) {
    versions_.push_back(written.counter.current_version());
  }
  // Several tensors may share a counter, of which the first was written to first.
  for (auto written = outside_.versions_.rbegin(); written != outside_.versions_.rend();
       ++written) {
    c10::VariableVersion(written->counter).set_version(written->version);
  }
}

OutsideTensors::Rewind::~Rewind() {
  at::NoGradGuard no_grad;
  for (size_t i = 0; i < contents_.size(); ++i) {
    bytes_of(outside_.storages_[i].storage).copy_(contents_[i]);
  }
  for (size_t i = 0; i < versions_.size(); ++i) {
    c10::VariableVersion(outside_.versions_[i].counter).set_version(versions_[i]);
  }
  for (auto kept = kept_.rbegin(); kept != kept_.rend(); ++kept) kept->restore();
}

/// What LibTorch calls around every operator.
struct WatchCallbacks {
  struct Context final : at::ObserverContext {
    const Operator* op = nullptr;
    std::vector<const c10::StorageImpl*> inputs;
  };

  static std::unique_ptr<at::ObserverContext> start(const at::RecordFunction& call) {
    const Operator* op = operator_of(call);
    if (op == nullptr) return nullptr;
    at::RecordFunctionGuard unwatched(/*is_enabled=*/false);
    auto context = std::make_unique<Context>();
    context->op = op;
    for (const c10::IValue& input : call.inputs()) {
      for_each_tensor(
          input, [&](const at::Tensor& tensor) { context->inputs.push_back(storage_of(tensor)); });
    }
    for (RegionWatch* watch : watches()) watch->start(*op, call.inputs());
    running().push_back(&context->inputs);
    return context;
  }

  static void end(const at::RecordFunction& call, at::ObserverContext* context) {
    if (context == nullptr) return;
    at::RecordFunctionGuard unwatched(/*is_enabled=*/false);
    auto& started = static_cast<Context&>(*context);
    running().pop_back();
    for (RegionWatch* watch : watches()) watch->end(*started.op, started.inputs, call.outputs());
  }
};

RegionWatch::RegionWatch(OutsideTensors& outside, Ended ended)
    : outside_(outside), ended_(std::move(ended)), depth_(running().size()) {
  if (num_watches++ == 0) {
    callback = at::addThreadLocalCallback(
        at::RecordFunctionCallback(WatchCallbacks::start, WatchCallbacks::end)
            .needsInputs(true)
            .needsOutputs(true)
            .scopes({at::RecordScope::FUNCTION}));
  }
  watches().push_back(this);
}

RegionWatch::~RegionWatch() {
  watches().erase(std::find(watches().begin(), watches().end(), this));
  if (--num_watches == 0) at::removeCallback(callback);
}

CheckpointPause::CheckpointPause() : packer_(std::exchange(front_engine::packer(), nullptr)) {
  watches().swap(watches_);
}

CheckpointPause::~CheckpointPause() {
  watches().swap(watches_);
  front_engine::packer() = packer_;
}

/// Inside an operator, tensors from outside are operands of that operator; others it has just made.
const RegionWatch::Storages* RegionWatch::outermost_inputs() const {
  return running().size() > depth_ ? running()[depth_] : nullptr;
}

void RegionWatch::start(const Operator& op, c10::ArrayRef<const c10::IValue> inputs) {
  if (outermost_inputs() == nullptr) {
    for (const c10::IValue& input : inputs) {
      for_each_tensor(input, [&](const at::Tensor& tensor) { note_read(tensor); });
    }
  }
  const ops::OpFacts& facts = ops::facts(op);
  for (const auto* writes : {&facts.writes, &facts.hidden_writes}) {
    for (uint8_t index : *writes) {
      for_each_tensor(inputs[index], [&](const at::Tensor& tensor) { note_write(tensor); });
    }
  }
}

void RegionWatch::end(const Operator& op, const Storages& inputs,
                      const std::vector<c10::IValue>& outputs) {
  std::vector<at::Tensor> results;
  for (const c10::IValue& output : outputs) {
    for_each_tensor(output, [&](const at::Tensor& tensor) {
      const c10::StorageImpl* storage = storage_of(tensor);
      if (storage == nullptr) return;
      results.push_back(tensor);
      if (std::find(inputs.begin(), inputs.end(), storage) == inputs.end()) {
        made_here_.try_emplace(storage, tensor.storage().getWeakStorageImpl());
      }
    });
  }
  ended_(op, results);
}

bool RegionWatch::is_made_here(const at::Tensor& tensor) const {
  return made_here_.count(storage_of(tensor)) != 0;
}

void RegionWatch::note_read(const at::Tensor& tensor) {
  if (!is_real(tensor) || tensor.is_inference() || is_made_here(tensor)) return;
  c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  if (!seen_.try_emplace(impl, tensor.getIntrusivePtr()).second) return;
  if (tensor.is_view()) note_history(tensor);
  outside_.reads_.push_back(
      {impl->version_counter(), version_of(tensor), storage_of(tensor), TensorMeta::of(tensor)});
}

void RegionWatch::note_write(const at::Tensor& tensor) {
  if (!is_real(tensor) || is_made_here(tensor)) return;
  const Storages* inputs = outermost_inputs();
  if (inputs != nullptr &&
      std::find(inputs->begin(), inputs->end(), storage_of(tensor)) == inputs->end()) {
    return;
  }
  if (!outside_.is_written(storage_of(tensor))) {
    at::NoGradGuard no_grad;
    outside_.storages_.push_back({tensor.storage(), bytes_of(tensor.storage()).clone()});
  }
  c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  if (tensor.is_inference() || !written_.try_emplace(impl, tensor.getIntrusivePtr()).second) return;
  outside_.versions_.push_back({impl->version_counter(), version_of(tensor)});
  note_history(tensor);
  if (tensor.is_view()) note_history(at::Tensor(tensor._base()));
}

void RegionWatch::note_history(const at::Tensor& tensor) {
  outside_.rebased_.push_back({decltype(OutsideTensors::Met::tensor)(tensor.getIntrusivePtr()),
                               tensor.sizes().vec(), tensor.strides().vec(),
                               tensor.storage_offset()});
}

}  // namespace ahead::runtime

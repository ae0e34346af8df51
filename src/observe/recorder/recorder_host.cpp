#include <ATen/ops/equal.h>

#include <algorithm>

#include "ahead/errors.h"
#include "ahead/host_state.h"
#include "observe/recorder/place.h"
#include "observe/recorder/recorder.h"

/// Numbers that the host keeps and recorded code computes with.
namespace ahead {
namespace observe {
namespace {

bool is_same(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto& x, const auto& y) {
    return x.scalar_type() == y.scalar_type() && x.device() == y.device() && at::equal(x, y);
  });
}

}  // namespace

/// From now on a state has the numbers that it has now.
void Recorder::expect_numbers(const std::shared_ptr<HostState>& state) {
  const HostTaking taking{state};
  std::erase_if(expected_numbers_, [&](const auto& known) { return taking.is_of(known.state); });
  const RecordingPause pause;
  if (state->guard()) expected_numbers_.push_back({state, state->inputs(0)});
}

/// Code that sets the numbers itself would not run in a hit.
void Recorder::check_numbers(const std::shared_ptr<HostState>& state) {
  const HostTaking taking{state};
  const RecordingPause pause;
  for (const ExpectedNumbers& expected : expected_numbers_) {
    if (!taking.is_of(expected.state) || !state->guard() ||
        is_same(expected.numbers, state->inputs(0)))
      continue;
    refuse(
        "the function changes numbers of the host's that it takes (the rate of an optimizer, set "
        "by a scheduler). Do so outside.");
  }
}

std::vector<at::Tensor> Recorder::take_next(const std::shared_ptr<HostState>& state) {
  std::lock_guard<std::recursive_mutex> lock(mutex_);
  check_numbers(state);
  HostTaking taking{state};
  std::vector<at::Tensor> numbers;
  {
    const RecordingPause pause;
    taking.is_held = state->guard();
    numbers = state->inputs(0);
    state->commit();
  }
  expect_numbers(state);
  for (const HostTaking& earlier : tape_->takings) taking.ahead += taking.is_of(earlier.state);
  const auto index = static_cast<uint32_t>(tape_->takings.size());
  tape_->takings.push_back(taking);
  for (uint32_t i = 0; i < numbers.size(); ++i) add_number_of_host({index, i}, numbers[i]);
  return numbers;
}

/// What is known from one call is looked at when the next one begins.
void Recorder::ask_for_grad(const at::Tensor& leaf) {
  std::lock_guard<std::recursive_mutex> lock(mutex_);
  meet(leaf);
}

void Recorder::add_number_of_host(const HostInput& input, const at::Tensor& number) {
  if (ids_.count(number.unsafeGetTensorImpl()) != 0 || number.requires_grad() ||
      !number.is_leaf() || !has_place(number))
    return refuse(
        "HostState::inputs returns a tensor that is not new, dense and without a history");
  CapturedTensor captured{add_variable(number), WeakTensor(number.getIntrusivePtr())};
  captured.look = TensorMeta::of(number);
  captured.host = input;
  captured.state = number;
  tape_->captured.push_back(std::move(captured));
}

}  // namespace observe

std::vector<at::Tensor> take_next(const std::shared_ptr<HostState>& state) {
  if (state == nullptr) throw UserError("take_next", "the HostState is null. Make one first.");
  if (observe::Recorder* recorder = observe::Recorder::current()) return recorder->take_next(state);
  std::vector<at::Tensor> numbers = state->inputs(0);
  state->commit();
  return numbers;
}

}  // namespace ahead

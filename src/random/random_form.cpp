#include "random/random_form.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/enum_tag.h>
#include <ATen/ops/empty_strided.h>

#include <algorithm>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "base/thread_object.h"
#include "ir/operator_maker.h"
#include "random/generator_state.h"
#include "tensors/device.h"

namespace ahead {
namespace {

using c10::FunctionSchema;
using torch::jit::Stack;

/// The two kinds of forms: functions of a state, and draws that tell their state.
struct Kind {
  std::string_view prefix;
  const char* qualified_name;
};
constexpr Kind functional{"ahead.random.", "ahead::random"};
constexpr Kind telling{"ahead.draw.", "ahead::draw"};

bool is_generator(const c10::Argument& argument) {
  const c10::Type* type = argument.type().get();
  if (type->kind() == c10::TypeKind::OptionalType) type = type->containedType(0).get();
  return type->kind() == c10::TypeKind::GeneratorType;
}

bool is_tensor(const c10::Argument& argument) {
  return argument.type()->kind() == c10::TypeKind::TensorType;
}

int64_t find_generator(const FunctionSchema& schema) {
  const auto& arguments = schema.arguments();
  const auto found = std::find_if(arguments.begin(), arguments.end(), is_generator);
  return found == arguments.end() ? -1 : found - arguments.begin();
}

/// Whether `other` takes what `schema` takes, and a generator at this position.
bool takes_generator_besides(const FunctionSchema& schema, const FunctionSchema& other) {
  const auto &own = schema.arguments(), &others = other.arguments();
  const int64_t at = find_generator(other);
  if (at < 0 || others.size() != own.size() + 1) return false;
  for (size_t i = 0; i < own.size(); ++i) {
    const c10::Argument& same = others[i + (static_cast<int64_t>(i) >= at ? 1 : 0)];
    if (same.name() != own[i].name() || *same.type() != *own[i].type()) return false;
  }
  return true;
}

/// How an operator is made to draw from a generator of ours.
struct Target {
  c10::OperatorHandle handle;
  int64_t generator = -1;  ///< its argument for it; -1: none, it draws from the default one
  bool is_added = false;   ///< the operator itself has no such argument, but this overload has
  bool writes = false;     ///< it writes to its first argument
};

Target target_of(const c10::OperatorHandle& handle) {
  const FunctionSchema& schema = handle.schema();
  Target target{handle, find_generator(schema), false, schema.is_mutable()};
  if (target.generator >= 0) return target;
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    if (name.name != schema.name()) continue;
    const auto other = c10::Dispatcher::singleton().findSchema(name);
    if (!other || !takes_generator_besides(schema, other->schema())) continue;
    return {*other, find_generator(other->schema()), true, target.writes};
  }
  return target;
}

/// Where a call computes: the device of its tensors, or the one that it names.
at::Device device_of(c10::ArrayRef<c10::IValue> arguments) {
  at::Device device = at::kCPU;
  for (const c10::IValue& argument : arguments) {
    if (argument.isDevice()) return with_index(argument.toDevice());
    if (argument.isTensor() && argument.toTensor().defined() && device.is_cpu())
      device = argument.toTensor().device();
  }
  return device;
}

/// Kernels draw in other orders where elements lie otherwise, so gaps between them stay.
at::Tensor copy_as_it_lies(const at::Tensor& tensor) {
  return at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options()).copy_(tensor);
}

/// A generator that nobody else draws from while a kernel runs on this thread.
at::Generator& own_generator(at::Device device) {
  auto& known =
      thread_object<std::unordered_map<at::Device, at::Generator>, struct OwnGenerators>();
  at::Generator& generator = known[device];
  if (generator.defined()) return generator;
  at::Generator other = at::globalContext().defaultGenerator(device);
  const std::lock_guard<std::mutex> lock(other.mutex());
  return generator = other.clone();
}

/// Gives the call a generator.
void put_generator(const Target& target, const at::Generator& generator, Stack& arguments) {
  const auto at = arguments.begin() + target.generator;
  if (target.is_added) {
    arguments.insert(at, generator);
  } else {
    *at = generator;
  }
}

/// Lends the default generator to an operator that takes no other one, and puts it back.
class LentGenerator {
 public:
  LentGenerator(at::Device device, const GeneratorState& state)
      : lock_(mutex()), device_(device), before_(GeneratorState::of_default(device)) {
    state.make_default(device);
  }
  ~LentGenerator() { before_.make_default(device_); }
  LentGenerator(const LentGenerator&) = delete;
  LentGenerator& operator=(const LentGenerator&) = delete;

  GeneratorState state() const { return GeneratorState::of_default(device_); }

 private:
  static std::mutex& mutex() {
    static auto* one = new std::mutex;
    return *one;
  }

  const std::lock_guard<std::mutex> lock_;
  const at::Device device_;
  const GeneratorState before_;
};

/// The kernel of a functional form.
class RandomKernel final : public c10::OperatorKernel {
 public:
  explicit RandomKernel(const c10::OperatorHandle& drawn)
      : target_(target_of(drawn)), num_arguments_(drawn.schema().arguments().size()) {}

  void operator()(const c10::OperatorHandle&, c10::DispatchKeySet, Stack* stack) {
    const size_t first = stack->size() - num_arguments_ - 2;
    const auto begin = stack->begin() + static_cast<std::ptrdiff_t>(first);
    const GeneratorState state{begin[0].toTensor(), begin[1].toTensor()};
    Stack arguments(std::make_move_iterator(begin + 2), std::make_move_iterator(stack->end()));
    stack->resize(first);
    if (target_.writes) arguments[0] = copy_as_it_lies(arguments[0].toTensor());
    at::Tensor offset = draw(state, arguments);
    stack->insert(stack->end(), std::make_move_iterator(arguments.begin()),
                  std::make_move_iterator(arguments.end()));
    stack->emplace_back(std::move(offset));
  }

 private:
  /// Puts the results in place of the arguments, and returns where the generator stands then.
  at::Tensor draw(const GeneratorState& state, Stack& arguments) const {
    const at::Device device = device_of(arguments);
    if (target_.generator < 0) {
      const LentGenerator lent(device, state);
      target_.handle.callBoxed(arguments);
      return lent.state().offset;
    }
    at::Generator& generator = own_generator(device);
    const auto lock = [&] { return std::lock_guard<std::mutex>(generator.mutex()); };
    {
      const auto held = lock();
      state.apply_to(generator);
    }
    put_generator(target_, generator, arguments);
    target_.handle.callBoxed(arguments);
    const auto held = lock();
    return GeneratorState::of(generator).offset;
  }

  const Target target_;
  const size_t num_arguments_;
};

/// The kernel of a form that tells its state. The default generator is held while another one, put
/// into its state, draws in its place.
class TellingKernel final : public c10::OperatorKernel {
 public:
  explicit TellingKernel(const Target& target, size_t num_arguments)
      : target_(target), num_arguments_(num_arguments) {}

  void operator()(const c10::OperatorHandle&, c10::DispatchKeySet, Stack* stack) {
    const auto begin = stack->end() - static_cast<std::ptrdiff_t>(num_arguments_);
    Stack arguments(std::make_move_iterator(begin), std::make_move_iterator(stack->end()));
    stack->resize(stack->size() - num_arguments_);
    const at::Device device = device_of(arguments);
    at::Generator& generator = own_generator(device);
    at::Generator other = at::globalContext().defaultGenerator(device);
    const std::lock_guard<std::mutex> lock(other.mutex());
    GeneratorState state = GeneratorState::of(other);
    state.apply_to(generator);
    put_generator(target_, generator, arguments);
    target_.handle.callBoxed(arguments);
    GeneratorState::of(generator).apply_to(other);
    stack->insert(stack->end(), std::make_move_iterator(arguments.begin()),
                  std::make_move_iterator(arguments.end()));
    stack->emplace_back(std::move(state.seed));
    stack->emplace_back(std::move(state.offset));
  }

 private:
  const Target target_;
  const size_t num_arguments_;
};

/// Whether an operator only returns tensors, and writes to nothing but its first argument.
bool has_form(const FunctionSchema& schema) {
  const auto& arguments = schema.arguments();
  if (!std::all_of(schema.returns().begin(), schema.returns().end(), is_tensor)) return false;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const bool is_written =
        arguments[i].alias_info() != nullptr && arguments[i].alias_info()->isWrite();
    if (is_written && (i != 0 || !is_tensor(arguments[i]) || schema.returns().size() != 1))
      return false;
  }
  return !schema.returns().empty();
}

c10::Argument without_aliases(const c10::Argument& argument) {
  return {argument.name(),          argument.type(),       argument.real_type(), argument.N(),
          argument.default_value(), argument.kwarg_only(), std::nullopt};
}

FunctionSchema schema_of(const Operator& op, const Kind& kind) {
  const bool is_functional = &kind == &functional;
  std::vector<c10::Argument> arguments;
  if (is_functional)
    arguments = {{"seed", c10::TensorType::get()}, {"offset", c10::TensorType::get()}};
  for (const c10::Argument& argument : op.schema().arguments())
    arguments.push_back(without_aliases(argument));
  std::vector<c10::Argument> returns;
  for (const c10::Argument& result : op.schema().returns())
    returns.push_back(without_aliases(result));
  if (!is_functional) returns.emplace_back("seed", c10::TensorType::get());
  returns.emplace_back(is_functional ? "new_offset" : "offset", c10::TensorType::get());
  return {kind.qualified_name, op.name(), std::move(arguments), std::move(returns)};
}

/// The forms of one kind made so far. Never freed: static destructors may run graphs.
class Forms {
 public:
  explicit Forms(const Kind& kind) : kind_(kind) {}

  const Operator* of(const Operator& op) {
    if (!op.in_dispatcher() || !has_form(op.schema())) return nullptr;
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto known = forms_.find(&op);
    return known != forms_.end() ? known->second : forms_[&op] = make(op);
  }

 private:
  const Operator* make(const Operator& op) {
    const Target target = target_of(op.handle());
    if (&kind_ == &functional) return define(op, std::make_unique<RandomKernel>(op.handle()), {});
    if (target.generator < 0 || target.writes) return nullptr;
    return define(op, std::make_unique<TellingKernel>(target, op.schema().arguments().size()),
                  {at::Tag::nondeterministic_seeded});
  }

  template <class Kernel>
  const Operator* define(const Operator& op, std::unique_ptr<Kernel> kernel,
                         std::vector<at::Tag> tags) {
    auto& dispatcher = c10::Dispatcher::singleton();
    const char* const source = "ahead: a random operator";
    registrations_.push_back(dispatcher.registerDef(schema_of(op, kind_), source, std::move(tags)));
    registrations_.push_back(dispatcher.registerImpl(
        {kind_.qualified_name, op.name()}, c10::DispatchKey::CompositeExplicitAutograd,
        c10::KernelFunction::makeFromBoxedFunctor(std::move(kernel)), std::nullopt, nullptr,
        source));
    return &Operator::of(dispatcher.findSchemaOrThrow(kind_.qualified_name, op.name().c_str()));
  }

  const Kind& kind_;
  std::mutex mutex_;
  std::unordered_map<const Operator*, const Operator*> forms_;
  std::vector<c10::RegistrationHandleRAII> registrations_;
};

template <const Kind& kind>
const Operator* form_of(const Operator& op) {
  static auto* forms = new Forms(kind);
  return forms->of(op);
}

template <const Kind& kind>
const Operator* make_form(std::string_view name) {
  const Operator* op = Operator::find(name.substr(kind.prefix.size()));
  return op == nullptr ? nullptr : form_of<kind>(*op);
}

[[maybe_unused]] const bool is_registered = [] {
  make_on_demand(functional.prefix, make_form<functional>);
  make_on_demand(telling.prefix, make_form<telling>);
  return true;
}();

}  // namespace

const Operator* random_form(const Operator& op) {
  return form_of<functional>(op);
}

const Operator* telling_form(const Operator& op) {
  return form_of<telling>(op);
}

const Operator* drawn_by(const Operator& form) {
  const std::string_view name = form.name();
  return name.starts_with(functional.prefix) ? Operator::find(name.substr(functional.prefix.size()))
                                             : nullptr;
}

int64_t generator_argument(const Operator& op) {
  return find_generator(op.schema());
}

}  // namespace ahead

#include "fuzz/generator.h"

#include "fuzz/call_numbers.h"
#include "fuzz/draft.h"
#include "fuzz/eager.h"
#include "support/eager.h"

namespace ahead::fuzz {
namespace {

constexpr int64_t largest_tensor = 300;
constexpr double largest_number = 1e4;

Ints random_sizes(Random& random, const Ints& palette) {
  const int64_t rank = random.pick<int64_t>({0, 1, 1, 2, 2, 2, 2, 3, 3, 4});
  Ints sizes;
  for (int64_t i = 0; i < rank; ++i) sizes.push_back(random.pick(palette));
  if (rank > 0 && random.chance(0.01)) sizes[random.below(sizes.size())] = 0;
  return sizes;
}

at::ScalarType random_dtype(Random& random) {
  using enum c10::ScalarType;
  return random.pick<at::ScalarType>({Float, Float, Float, Float, Float, Float, Float, Float,
                                      Double, Double, BFloat16, Long, Long, Bool});
}

Layout random_layout(Random& random) {
  using enum Layout;
  return random.pick<Layout>({Contiguous, Contiguous, Contiguous, Contiguous, Contiguous, Offset,
                              Transposed, Transposed, Gapped, Expanded});
}

Origin random_origin(Random& random, Layout layout) {
  const bool viewable = layout != Layout::Expanded;
  if (random.chance(0.5)) return Origin::Computed;
  return viewable && random.chance(0.3) ? Origin::ViewOfComputed : Origin::Leaf;
}

/// A seed's program in the making.
class Generator {
 public:
  Generator(Random& random, const Dialect& dialect)
      : random_(random),
        dialect_(dialect),
        families_(dialect.call_numbers ? families_for_call_numbers() : families(dialect.effects)),
        machine_({}) {}

  Program run() {
    // Few sizes, so that tensors fit each other.
    palette_ = {1, random_.between(2, 4), random_.between(2, 4), random_.between(2, 5)};
    if (dialect_.call_numbers) palette_.insert(palette_.end(), 3, CallNumbers().batch);
    program_.has_call_numbers = dialect_.call_numbers;
    program_.no_grad = random_.chance(0.04);
    at::AutoGradMode mode(!program_.no_grad);
    seed_generator();
    add_inputs();
    const int64_t length = random_.chance(0.2) ? random_.between(12, 30) : random_.between(1, 12);
    for (int64_t i = 0; i < length && !ended_; ++i) add_instruction();
    add_results();
    return std::move(program_);
  }

 private:
  void add_inputs() {
    const int64_t count = random_.between(1, 4);
    for (int64_t i = 0; i < count; ++i) program_.inputs.push_back(random_input());
    Machine machine(tensors_of(make_inputs(program_.inputs)));
    machine_ = std::move(machine);
  }

  Input random_input() {
    Input input;
    input.captured = random_.chance(0.2);
    const size_t known = program_.inputs.size();
    if (known > 0 && random_.chance(0.04)) {
      input.same_as = static_cast<int>(random_.below(known));
    } else if (known > 0 && random_.chance(0.03)) {
      input.shares_memory_with = static_cast<int>(random_.below(known));
    }
    if (known > 0 && dialect_.sharing == Sharing::Often && input.is_own()) share(input, known);
    if (dialect_.call_numbers && !input.is_own()) input.captured = false;
    if (!input.is_own()) return input;
    input.dtype = random_dtype(random_);
    input.sizes = random_sizes(random_, palette_);
    input.layout = random_layout(random_);
    input.requires_grad = at::isFloatingType(input.dtype) && random_.chance(0.7);
    if (input.requires_grad) input.origin = random_origin(random_, input.layout);
    input.seed = random_.next() % 1000;
    input.wrapper = dialect_.wrappers && random_.chance(0.35);
    pass_if_it_changes(input);
    return input;
  }

  /// What has another size in each call cannot be captured.
  void pass_if_it_changes(Input& input) const {
    if (dialect_.call_numbers && depends_on_call(input.sizes)) input.captured = false;
  }

  void share(Input& input, size_t known) {
    const auto other = static_cast<int>(random_.below(known));
    const double choice = random_.fraction();
    if (choice < 0.08) {
      input.same_as = other;
    } else if (choice < 0.16) {
      input.shares_memory_with = other;
    } else if (choice < 0.3) {
      input.view_of = other;
    }
  }

  void add_instruction() {
    for (int attempt = 0; attempt < 20; ++attempt) {
      if (try_instruction()) return;
    }
  }

  const Operation& random_operation() {
    double total = 0;
    for (const Family& family : families_) total += family.weight;
    double left = total * static_cast<double>(random_.next() % 10000) / 10000;
    for (const Family& family : families_) {
      left -= family.weight;
      if (left < 0) return random_.pick(family.operations);
    }
    return random_.pick(families_.back().operations);
  }

  bool try_instruction() {
    Draft draft(machine_, random_);
    const Operation& operation = random_operation();
    draft.instruction.operation = &operation;
    no_grad_ = random_.chance(no_grad_ ? 0.7 : 0.05);
    draft.instruction.no_grad = no_grad_;
    if (dialect_.effects) autocast_ = random_.chance(autocast_ ? 0.7 : 0.05);
    draft.instruction.autocast = autocast_;
    try {
      operation.propose(draft);
    } catch (const NoFit&) {
      return false;
    }
    for (Input& input : draft.captures) {
      input.wrapper = dialect_.wrappers && random_.chance(0.2);
      pass_if_it_changes(input);
      machine_.add_input(make_input(input));
    }
    if (!run(draft.instruction)) {
      for (size_t i = 0; i < draft.captures.size(); ++i) machine_.drop_last_input();
      return false;
    }
    program_.inputs.insert(program_.inputs.end(), draft.captures.begin(), draft.captures.end());
    program_.body.push_back(std::move(draft.instruction));
    return true;
  }

  /// False if the instruction should not be in the program. A few that throw should.
  bool run(Instruction& instruction) {
    Machine trial = machine_;
    try {
      instruction.num_results = trial.step_and_count(instruction);
    } catch (const std::exception&) {
      ended_ = random_.chance(0.01);
      return ended_;
    }
    for (size_t i = machine_.num_values(); i < trial.num_values(); ++i) {
      if (!is_moderate(trial.get(static_cast<Variable>(i)))) return false;
    }
    machine_ = std::move(trial);
    return true;
  }

  /// Neither large nor full of infinities, behind which nothing else would be seen.
  bool is_moderate(const at::Tensor& tensor) {
    if (tensor.numel() > largest_tensor) return false;
    if (tensor.numel() == 0 || tensor.scalar_type() == at::kBool) return true;
    double largest = 0;
    for (const at::Tensor& plain : plain_tensors(tensor.detach()))
      largest = std::max(largest, plain.abs().max().to(at::kDouble).item<double>());
    return largest <= largest_number || random_.chance(0.02);
  }

  void add_results() {
    const size_t values = ended_ ? 0 : machine_.num_values();
    for (size_t i = 0; i < values; ++i) {
      const bool last = i + 1 == values;
      if (last || random_.chance(0.35)) program_.results.push_back(static_cast<Variable>(i));
    }
    for (size_t i = 0; i < program_.inputs.size(); ++i) {
      if (random_.chance(0.08)) program_.results.push_back(input_variable(i));
    }
    if (!program_.results.empty() && random_.chance(0.05)) {
      program_.results.push_back(random_.pick(program_.results));
    }
  }

  Random& random_;
  const Dialect dialect_;
  const std::vector<Family>& families_;
  Program program_;
  Machine machine_;
  Ints palette_;
  bool no_grad_ = false, autocast_ = false;
  bool ended_ = false;
};

/// False if backward throws; most such programs stumble over the same few checks.
bool runs_backward(const Program& program) {
  EagerRun eager(program);
  if (eager.threw() || program.no_grad) return true;
  const Tensors roots = eager.roots();
  Tensors tangents;
  for (const at::Tensor& root : roots) tangents.push_back(at::ones_like(root));
  try {
    eager.backward(roots, tangents);
  } catch (const std::exception&) {
    return false;
  }
  return true;
}

}  // namespace

Program generate(uint64_t seed, const Dialect& dialect) {
  Random random(seed);
  Program program;
  do {
    program = Generator(random, dialect).run();
  } while ((dialect.call_numbers && !batch_place(program)) ||
           (!runs_backward(program) && !random.chance(0.1)));
  program.seed = seed;
  return program;
}

}  // namespace ahead::fuzz

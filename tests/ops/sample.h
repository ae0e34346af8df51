#pragma once

#include <functional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "ops/input.h"

namespace ahead::samples {

using Tensors = std::vector<at::Tensor>;
using Fn = std::function<Tensors(const Tensors&)>;

/// What is checked for every sample.
enum class Check : uint8_t { Metadata, Values, Gradients };

/// One call of one operator.
struct Sample {
  std::string op;     ///< for example `aten.relu`, without the overload
  std::string label;  ///< unique among the operator's samples
  Inputs inputs;
  Fn call;  ///< takes all inputs, captured ones included
  /// Draws random numbers: every run must start from the same seed.
  bool random = false;
  /// The function, or only its gradient, reads values on the host: the tracer must throw
  /// DataDependent.
  bool reads_values = false, gradient_reads_values = false;
  /// False: eager itself throws when asked for gradients, and so must the tracer.
  bool differentiable = true;
  /// Why results can equal eager's up to rounding and layout only; empty: they are equal to the
  /// bit.
  std::string rounds, gradient_rounds;
  /// Why a check is not made for this sample; empty if it is.
  std::string skip_metadata, skip_values, skip_gradients;

  const std::string& skipped(Check check) const;
  /// Makes the arguments: all inputs but the captured ones.
  Tensors make_arguments() const;
  /// The function of the arguments. The captured tensors are made now and held by the result.
  Fn make_function() const;
};

namespace detail {

inline Tensors to_list(at::Tensor result) {
  return {std::move(result)};
}
inline Tensors to_list(Tensors result) {
  return result;
}
template <class... T>
Tensors to_list(const std::tuple<T...>& result) {
  Tensors list;
  const auto append = [&list](Tensors part) { list.insert(list.end(), part.begin(), part.end()); };
  std::apply([&](const auto&... part) { (append(to_list(part)), ...); }, result);
  return list;
}

template <size_t>
using TensorArgument = const at::Tensor&;

template <class F, size_t... I>
constexpr bool takes(std::index_sequence<I...>) {
  return std::is_invocable_v<const F&, TensorArgument<I>...>;
}
template <class F, size_t N = 1>
constexpr size_t arity() {
  if constexpr (takes<F>(std::make_index_sequence<N>())) {
    return N;
  } else if constexpr (N < 8) {
    return arity<F, N + 1>();
  } else {
    return 0;
  }
}

template <class F, size_t... I>
Tensors apply(const F& f, const Tensors& in, std::index_sequence<I...>) {
  using Result = std::invoke_result_t<const F&, TensorArgument<I>...>;
  TORCH_CHECK(in.size() == sizeof...(I), "a sample has ", in.size(), " inputs for a function of ",
              sizeof...(I));
  if constexpr (std::is_void_v<Result>) {
    f(in[I]...);
    return {};
  } else {
    return to_list(f(in[I]...));
  }
}

/// A lambda without captures becomes a function pointer, so that there is one erasing template per
/// signature and not one per sample.
template <class F, size_t... I>
Fn erase(F f, std::index_sequence<I...> indices) {
  using Pointer = std::invoke_result_t<const F&, TensorArgument<I>...> (*)(TensorArgument<I>...);
  if constexpr (std::is_convertible_v<F, Pointer>) {
    return
        [f = static_cast<Pointer>(f), indices](const Tensors& in) { return apply(f, in, indices); };
  } else {
    return [f = std::move(f), indices](const Tensors& in) { return apply(f, in, indices); };
  }
}

template <class F>
Fn erase(F f) {
  if constexpr (constexpr size_t count = arity<F>(); count != 0) {
    return erase(std::move(f), std::make_index_sequence<count>());
  } else {
    static_assert(std::is_invocable_v<const F&, const Tensors&>,
                  "a sample's function takes one to eight tensors, or a vector of tensors");
    return [f = std::move(f)](const Tensors& in) -> Tensors {
      if constexpr (std::is_void_v<std::invoke_result_t<const F&, const Tensors&>>) {
        f(in);
        return {};
      } else {
        return to_list(f(in));
      }
    };
  }
}

}  // namespace detail

/// All samples, grouped by operator.
class SampleTable {
 public:
  struct Op {
    std::string name;
    std::vector<Sample> samples;
  };

  /// Adds samples of one operator. What is said about the samples (random, skip) holds for all that
  /// follow in the same chain.
  class Builder {
   public:
    /// One sample. The function takes as many tensors as there are inputs (or one vector of them)
    /// and returns a tensor, a vector or tuple of tensors, or nothing if it only writes.
    template <class F>
    Builder& sample(std::string label, Inputs inputs, F f) {
      return add(std::move(label), std::move(inputs), detail::erase(std::move(f)));
    }
    /// One sample for each element of a set, such as unary_inputs(floating), labelled by its
    /// inputs; `label` comes first.
    template <class F>
    Builder& over(const std::vector<Inputs>& sets, F f, const std::string& label = "") {
      return add_all(sets, detail::erase(std::move(f)), label);
    }
    /// The function writes to its first tensor. Four samples: it writes to an argument, to an
    /// intermediate, and to one half of each.
    template <class F>
    Builder& in_place(const std::string& label, const Inputs& inputs, F f) {
      return add_in_place(label, inputs, detail::erase(std::move(f)));
    }
    /// in_place for each element of a set.
    template <class F>
    Builder& in_place_over(const std::vector<Inputs>& sets, F f, const std::string& label = "") {
      return add_all_in_place(sets, detail::erase(std::move(f)), label);
    }
    /// The operator draws random numbers.
    Builder& random();
    /// The samples that follow read values on the host and cannot be traced.
    Builder& reads_values();
    /// The samples that follow can be traced, but their gradients read values on the host.
    Builder& gradient_reads_values();
    /// No graph can follow eager's own way of computing: the samples that follow are compared up to
    /// rounding, and in any layout. `reason` is for people.
    Builder& rounds(std::string reason);
    /// The same of the gradients alone.
    Builder& gradient_rounds(std::string reason);
    /// Leaves out one check; `reason` is for people.
    Builder& skip(Check check, std::string reason);
    /// Eager itself refuses to differentiate the samples that follow.
    Builder& not_differentiable();

   private:
    friend class SampleTable;
    Builder(SampleTable& table, size_t op) : table_(&table), op_(op) {}
    Builder& add(std::string label, Inputs inputs, Fn call);
    Builder& add_all(const std::vector<Inputs>& sets, const Fn& call, const std::string& label);
    Builder& add_in_place(const std::string& label, const Inputs& inputs, const Fn& write);
    Builder& add_all_in_place(const std::vector<Inputs>& sets, const Fn& write,
                              const std::string& label);

    SampleTable* table_;
    size_t op_;
    Sample traits_;
  };

  /// Continues the operator's samples if it has some already.
  Builder op(const std::string& name);
  const std::vector<Op>& ops() const { return ops_; }
  /// Calls change(Sample&) for every sample.
  template <class F>
  void for_each(F change) {
    for (Op& op : ops_) {
      for (Sample& sample : op.samples) change(sample);
    }
  }

 private:
  std::vector<Op> ops_;
};

/// Every sample of every family, made once.
const SampleTable& sample_table();

}  // namespace ahead::samples

#include "derivative/sized_backward.h"

#include <mutex>

#include "ir/sizes/graph_numbers.h"

namespace ahead::compiling {
namespace {

std::vector<int64_t> numbers_in(const at::Tensor& sizes) {
  const auto* first = sizes.const_data_ptr<int64_t>();
  return {first, first + sizes.numel()};
}

class SizedBackward final : public runtime::BackwardVariants {
 public:
  SizedBackward(std::shared_ptr<BackwardProgram> general, at::Tensor sizes)
      : BackwardVariants(*general, numbers_in(sizes)),
        general_(std::move(general)),
        sizes_(std::move(sizes)) {}

  PartPtr variant(const std::vector<at::Tensor>& tangents, const Mask& wanted) override {
    return general_->is_complete_for(tangents, wanted, this->tangents())
               ? complete()
               : special()->variant(tangents, wanted);
  }

  size_t num_variants() const override {
    const std::shared_ptr<BackwardProgram> special = special_.load();
    return special == nullptr ? 0 : special->num_variants();
  }

  Graph graph_for(const Mask& defined, const Mask& wanted, Layouts layouts) const override {
    return general_->graph_for(defined, wanted, layouts);
  }

  bool lies_as_traced(const Mask& defined, const Mask& wanted) const override {
    return general_->lies_as_traced(defined, wanted);
  }

 private:
  PartPtr complete() {
    PartPtr known = complete_.load();
    if (known != nullptr) return known;
    const PartPtr general = general_->complete();
    auto made = std::make_shared<Part>(Part{with_last_argument(general->run, sizes_),
                                            general->needs, tangents(), general->writes});
    complete_.store(made);
    return made;
  }

  /// For combinations of tangents that few programs meet.
  std::shared_ptr<BackwardProgram> special() const {
    std::shared_ptr<BackwardProgram> known = special_.load();
    if (known != nullptr) return known;
    std::shared_ptr<BackwardProgram> made = general_->at(numbers_in(sizes_));
    return special_.compare_exchange_strong(known, made) ? made : known;
  }

  const std::shared_ptr<BackwardProgram> general_;
  const at::Tensor sizes_;
  std::atomic<PartPtr> complete_;
  mutable std::atomic<std::shared_ptr<BackwardProgram>> special_;
};

class Derivatives final : public SizedDerivatives,
                          public std::enable_shared_from_this<Derivatives> {
 public:
  using Made = std::shared_ptr<runtime::DifferentiableBackward>;

  Derivatives(BackwardRecipe recipe, const Options& options, const detail::Compilers& compilers)
      : recipe_(std::move(recipe)), options_(options), compilers_(compilers) {}

  std::shared_ptr<runtime::DifferentiableBackward> at(
      const std::vector<int64_t>& sizes) const override;

  Made make(const std::vector<int64_t>& sizes) const {
    return make_double_backward(
        {at_sizes(recipe_.forward, sizes), recipe_.needs, recipe_.grad_arguments, recipe_.why_not},
        options_, compilers_);
  }

  const std::vector<BackwardRecipe::Need>& needs() const { return recipe_.needs; }

 private:
  const BackwardRecipe recipe_;
  const Options options_;
  const detail::Compilers compilers_;
};

class DerivativesAtSizes final : public runtime::DifferentiableBackward {
 public:
  DerivativesAtSizes(std::shared_ptr<const Derivatives> general, std::vector<int64_t> sizes)
      : general_(std::move(general)), sizes_(std::move(sizes)) {}

  const std::vector<Need>& needs() const override { return general_->needs(); }
  std::vector<at::Tensor> run(const Request& request) override { return made().run(request); }
  std::vector<Program> programs() override {
    std::lock_guard<std::mutex> lock(mutex_);
    return made_ == nullptr ? std::vector<Program>() : made_->programs();
  }

 private:
  DifferentiableBackward& made() {
    std::lock_guard<std::mutex> lock(mutex_);
    if (made_ == nullptr) made_ = general_->make(sizes_);
    return *made_;
  }

  const std::shared_ptr<const Derivatives> general_;
  const std::vector<int64_t> sizes_;
  std::mutex mutex_;
  Derivatives::Made made_;
};

std::shared_ptr<runtime::DifferentiableBackward> Derivatives::at(
    const std::vector<int64_t>& sizes) const {
  return std::make_shared<DerivativesAtSizes>(shared_from_this(), sizes);
}

}  // namespace

aot::Executable with_last_argument(const aot::Executable& general, at::Tensor last) {
  using Tensors = std::vector<at::Tensor>;
  const auto run = [general, last](Tensors&& args) {
    args.push_back(last);
    return general(std::move(args));
  };
  if (!general.is_resumable()) return run;
  return {run, [general, last](Tensors&& args) {
            args.push_back(last);
            return general.begin(std::move(args));
          }};
}

std::shared_ptr<runtime::BackwardVariants> backward_at_sizes(
    std::shared_ptr<BackwardProgram> general, at::Tensor sizes) {
  return std::make_shared<SizedBackward>(std::move(general), std::move(sizes));
}

std::shared_ptr<const SizedDerivatives> make_sized_derivatives(BackwardRecipe recipe,
                                                               const Options& options,
                                                               const detail::Compilers& compilers) {
  return std::make_shared<const Derivatives>(std::move(recipe), options, compilers);
}

}  // namespace ahead::compiling

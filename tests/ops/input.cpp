#include "ops/input.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ScalarOps.h>

#include <limits>

namespace ahead::samples {
namespace {

constexpr at::ScalarType listed[] = {at::kFloat,        at::kDouble,       at::kBFloat16, at::kHalf,
                                     at::kLong,         at::kInt,          at::kByte,     at::kBool,
                                     at::kComplexFloat, at::kComplexDouble};

const char* short_name(at::ScalarType dtype) {
  switch (dtype) {
    case at::kFloat:
      return "f32";
    case at::kDouble:
      return "f64";
    case at::kBFloat16:
      return "bf16";
    case at::kHalf:
      return "f16";
    case at::kLong:
      return "i64";
    case at::kInt:
      return "i32";
    case at::kByte:
      return "u8";
    case at::kBool:
      return "b8";
    case at::kComplexFloat:
      return "c64";
    case at::kComplexDouble:
      return "c128";
    default:
      return c10::toString(dtype);
  }
}

at::Tensor special_values(at::ScalarType dtype) {
  const double infinity = std::numeric_limits<double>::infinity();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  if (at::isIntegralType(dtype, /*includeBool=*/true)) {
    if (dtype == at::kLong) {
      return at::tensor({std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max(),
                         int64_t{0}, int64_t{-1}});
    }
    return at::tensor({std::numeric_limits<int64_t>::max(), int64_t{0}, int64_t{-1}}).to(dtype);
  }
  if (at::isComplexType(dtype)) {
    const at::Tensor real =
        at::tensor({nan, infinity, -infinity, 0.0, -0.0, 1.0, 1.0}, at::kDouble);
    const at::Tensor imag = at::tensor({0.0, 1.0, nan, -0.0, 0.0, infinity, 0.0}, at::kDouble);
    return at::complex(real, imag).to(dtype);
  }
  const double tiny = dtype == at::kDouble ? 1e-310 : dtype == at::kHalf ? 1e-6 : 1e-40;
  const double huge = dtype == at::kDouble ? 1e308 : dtype == at::kHalf ? 6e4 : 3e38;
  return at::tensor({nan, infinity, -infinity, 0.0, -0.0, tiny, huge, -huge, 0.5, 1.5}, at::kDouble)
      .to(dtype);
}

}  // namespace

std::vector<at::ScalarType> Dtypes::list() const {
  std::vector<at::ScalarType> result;
  for (at::ScalarType dtype : listed) {
    if (contains(dtype)) result.push_back(dtype);
  }
  return result;
}

Input::Input(at::ScalarType dtype, std::vector<int64_t> sizes)
    : dtype_(dtype), sizes_(std::move(sizes)) {}

Input Input::range(double low, double high) const {
  Input copy = *this;
  copy.values_ = Values::Range;
  copy.low_ = low;
  copy.high_ = high;
  return copy;
}

Input Input::positive() const {
  return at::isIntegralType(dtype_, /*includeBool=*/true) ? range(1, 10) : range(0.5, 2.5);
}

Input Input::distinct() const {
  Input copy = *this;
  copy.values_ = Values::Distinct;
  return copy;
}

Input Input::specials() const {
  Input copy = *this;
  copy.values_ = Values::Specials;
  return copy;
}

Input Input::permutation() const {
  Input copy = *this;
  copy.values_ = Values::Permutation;
  return copy;
}

Input Input::spd() const {
  Input copy = *this;
  copy.values_ = Values::Spd;
  return copy;
}

Input Input::filled(double number) const {
  Input copy = *this;
  copy.values_ = Values::Filled;
  copy.low_ = number;
  return copy;
}

Input Input::with(Layout layout) const {
  Input copy = *this;
  copy.layout_ = layout;
  return copy;
}

Input Input::transposed() const {
  return with(Layout::Transposed);
}
Input Input::permuted() const {
  return with(Layout::Permuted);
}
Input Input::strided() const {
  return with(Layout::Strided);
}
Input Input::channels_last() const {
  return with(Layout::ChannelsLast);
}
Input Input::offset() const {
  return with(Layout::Offset);
}

Input Input::expanded(int64_t dim) const {
  Input copy = with(Layout::Expanded);
  copy.expanded_dim_ = dim;
  return copy;
}

Input Input::captured() const {
  Input copy = *this;
  copy.captured_ = true;
  return copy;
}

Input Input::no_grad() const {
  Input copy = *this;
  copy.no_grad_ = true;
  return copy;
}

Input Input::stacked() const {
  Input copy = *this;
  copy.sizes_.insert(copy.sizes_.begin(), 2);
  return copy;
}

Input number(const at::Scalar& value) {
  Input input = Input(value.type(), {}).captured().no_grad();
  if (value.isComplex()) {
    input = input.range(value.toComplexDouble().real(), value.toComplexDouble().imag());
  } else {
    input = input.filled(value.toDouble());
  }
  input.wrapped_number_ = true;
  return input;
}

bool Input::wants_grad() const {
  return !no_grad_ && !captured_ && (at::isFloatingType(dtype_) || at::isComplexType(dtype_));
}

at::Tensor Input::make_values(at::IntArrayRef sizes, at::Generator& generator) const {
  const bool complex = at::isComplexType(dtype_);
  const bool whole = at::isIntegralType(dtype_, /*includeBool=*/false);
  const auto wide = at::TensorOptions(complex ? at::kComplexDouble : at::kDouble);
  switch (values_) {
    case Values::Normal:
      if (dtype_ == at::kBool) return at::randint(0, 2, sizes, generator, wide);
      if (whole) return at::randint(dtype_ == at::kByte ? 0 : -9, 10, sizes, generator, wide);
      return at::randn(sizes, generator, wide);
    case Values::Range: {
      if (whole || dtype_ == at::kBool) {
        return at::randint(int64_t(low_), int64_t(high_), sizes, generator, wide);
      }
      const auto draw = [&] {
        return at::rand(sizes, generator, at::kDouble) * (high_ - low_) + low_;
      };
      const at::Tensor real_part = draw();
      return complex ? at::complex(real_part, draw()) : real_part;
    }
    case Values::Distinct:
    case Values::Permutation: {
      const int64_t count = c10::multiply_integers(sizes);
      const at::Tensor order = at::randperm(count, generator, at::kDouble).reshape(sizes);
      return values_ == Values::Permutation || whole ? order : (order - count / 2) * 0.375;
    }
    case Values::Specials: {
      const at::Tensor values = at::randn(sizes, generator, wide).to(dtype_);
      const at::Tensor specials = special_values(dtype_);
      const int64_t count = std::min(values.numel(), specials.numel());
      values.view(-1).narrow(0, 0, count).copy_(specials.narrow(0, 0, count));
      return values;
    }
    case Values::Spd: {
      const at::Tensor a = at::randn(sizes, generator, wide);
      return at::matmul(a, a.mH()) + at::eye(sizes.back(), wide) * double(sizes.back());
    }
    case Values::Filled:
      return at::full(sizes, low_, wide);
  }
  return {};
}

at::Tensor Input::in_layout(const at::Tensor& values) const {
  switch (layout_) {
    case Layout::Contiguous:
      return values;
    case Layout::Transposed:
      return values.transpose(-1, -2).contiguous().transpose(-1, -2);
    case Layout::Permuted: {
      std::vector<int64_t> reversed(values.dim());
      for (int64_t i = 0; i < values.dim(); ++i) reversed[i] = values.dim() - 1 - i;
      return values.permute(reversed).contiguous().permute(reversed);
    }
    case Layout::Strided: {
      std::vector<int64_t> doubled = values.sizes().vec();
      for (int64_t& size : doubled) size *= 2;
      at::Tensor view = at::zeros(doubled, values.options());
      for (int64_t i = 0; i < values.dim(); ++i) view = view.slice(i, 0, std::nullopt, 2);
      return view.copy_(values);
    }
    case Layout::Expanded:
      return values.narrow(expanded_dim_, 0, 1).contiguous().expand(values.sizes());
    case Layout::ChannelsLast:
      return values.contiguous(values.dim() == 5 ? at::MemoryFormat::ChannelsLast3d
                                                 : at::MemoryFormat::ChannelsLast);
    case Layout::Offset:
      return at::zeros({values.numel() + 3}, values.options())
          .narrow(0, 3, values.numel())
          .view(values.sizes())
          .copy_(values);
  }
  return {};
}

at::Tensor Input::make(uint64_t seed) const {
  at::NoGradGuard no_grad;
  if (wrapped_number_) {
    const at::Scalar value = at::isComplexType(dtype_)
                                 ? at::Scalar(c10::complex<double>(low_, high_))
                             : dtype_ == at::kBool ? at::Scalar(low_ != 0)
                             : dtype_ == at::kLong ? at::Scalar(int64_t(low_))
                                                   : at::Scalar(low_);
    return at::native::wrapped_scalar_tensor(value);
  }
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  at::Tensor values = make_values(sizes_, generator).to(dtype_);
  // Layouts start from a tensor of their own storage: .to() may have returned a wider view.
  return in_layout(values.contiguous()).detach();
}

std::string Input::str() const {
  static const char* const layouts[] = {"",          " transposed",    " permuted", " strided",
                                        " expanded", " channels_last", " offset"};
  static const char* const kinds[] = {"",     " in range", " distinct", " specials", " permutation",
                                      " spd", " filled"};
  if (wrapped_number_) return "number " + c10::str(low_) + " " + short_name(dtype_);
  std::string text = short_name(dtype_);
  text += c10::str("[", c10::Join(", ", sizes_), "]");
  text += layouts[static_cast<size_t>(layout_)];
  if (layout_ == Layout::Expanded && expanded_dim_ != 0) text += c10::str(" ", expanded_dim_);
  text += kinds[static_cast<size_t>(values_)];
  if (captured_) text += " captured";
  return text;
}

}  // namespace ahead::samples

#pragma once

#include <ahead/subclass.h>

#include <memory>

/// A matrix of real numbers, kept as int8 with a scale for each row: a quarter of the memory. To be
/// multiplied with; whatever else is done with it is done with the numbers that it stands for.
class Int8Tensor final : public ahead::WrapperTensorOf<Int8Tensor> {
 public:
  static constexpr const char* class_name = "Int8Tensor";

  /// Rounds a matrix of floats.
  static at::Tensor quantize(const at::Tensor& matrix);
  /// The matrix that a wrapper of this class stands for; any other tensor is itself.
  static at::Tensor dequantize(const at::Tensor& tensor);

  Int8Tensor(at::Tensor data, at::Tensor scale)
      : data_(std::move(data)), scale_(std::move(scale)) {}
  ahead::WrapperParts flatten() const override { return {{data_, scale_}, {}}; }
  static std::shared_ptr<const Int8Tensor> unflatten(ahead::WrapperParts parts);
  bool dispatch(const c10::OperatorHandle& op, torch::jit::Stack& stack) const override;

 private:
  static at::Tensor make(at::Tensor data, at::Tensor scale);
  at::Tensor times(const at::Tensor& left) const;

  at::Tensor data_, scale_;  ///< int8; float, of one row or one column
};

// The operators as custom calls of XLA, for onehot.jax. XLA knows operands and results by number; the attributes "operands"
// and "results" of a call give their names, in the same order.
#include <fmt/format.h>
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>
#include <xla/ffi/api/ffi.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "names.h"
#include "onehot/onehot.h"
#include "run.h"

namespace onehot::python {
namespace {

namespace ffi = xla::ffi;

// Tensors and attributes of one call, by name: of XLA's, or of one that is only checked, whose tensors have no memory.
class Call {
 public:
  virtual ~Call() = default;

  std::optional<TensorView> Out(std::string_view name) const {
    for (const auto& [known, view] : tensors_)
      if (known == name) return view;
    return std::nullopt;
  }
  std::optional<ConstTensorView> In(std::string_view name) const { return Out(name); }

  // For tensors that every call of an operator has.
  TensorView Tensor(std::string_view name) const { return Out(name).value_or(TensorView{}); }

  virtual std::optional<std::int64_t> MaybeInteger(std::string_view name) const = 0;
  virtual std::optional<double> MaybeNumber(std::string_view name) const = 0;

  std::int64_t Integer(std::string_view name, std::int64_t otherwise) const {
    return MaybeInteger(name).value_or(otherwise);
  }
  double Number(std::string_view name, double otherwise) const { return MaybeNumber(name).value_or(otherwise); }
  bool Flag(std::string_view name) const { return Integer(name, 0) != 0; }
  Reduction ReductionNumber() const { return static_cast<Reduction>(Integer("reduction", 1)); }
  int ClassAxis() const { return AxisOf(Integer("class_axis", 1)); }

  // A sentence about this call, with the names of its arguments.
  Status Named(const Status& status) const { return Out("linear_weight") ? Renamed(status, kLinearNames) : status; }

 protected:
  void Add(std::string_view name, const TensorView& view) { tensors_.emplace_back(name, view); }

 private:
  std::vector<std::pair<std::string_view, TensorView>> tensors_;
};

Result<Plan> PrepareEmbedding(const Call& call) {
  return Prepare(Embedding{call.Tensor("weight"), call.Tensor("indices"), call.Tensor("out")});
}

Result<Plan> PrepareEmbeddingBackward(const Call& call) {
  EmbeddingBackward problem{call.Tensor("grad"), call.Tensor("indices"), call.Tensor("out")};
  problem.padding_idx = call.MaybeInteger("padding_idx");
  problem.scale_grad_by_freq = call.Flag("scale_grad_by_freq");
  return Prepare(problem);
}

Result<Plan> PrepareNllLoss(const Call& call) {
  NllLoss problem{call.Tensor("input"), call.Tensor("target"), call.Tensor("loss")};
  problem.total_weight = call.Out("total_weight");
  problem.weight = call.In("weight");
  problem.token_weight = call.In("token_weight");
  problem.denominator = call.In("denominator");
  problem.reduction = call.ReductionNumber();
  problem.ignore_index = call.Integer("ignore_index", kDefaultIgnoreIndex);
  problem.zero_if_empty = call.Flag("zero_if_empty");
  problem.class_axis = call.ClassAxis();
  return Prepare(problem);
}

Result<Plan> PrepareNllLossBackward(const Call& call) {
  NllLossBackward problem{call.Tensor("grad_output"), call.Tensor("target"), call.Tensor("out")};
  problem.total_weight = call.In("total_weight");
  problem.weight = call.In("weight");
  problem.token_weight = call.In("token_weight");
  problem.reduction = call.ReductionNumber();
  problem.ignore_index = call.Integer("ignore_index", kDefaultIgnoreIndex);
  problem.class_axis = call.ClassAxis();
  return Prepare(problem);
}

CrossEntropyOptions LossOptionsOf(const Call& call) {
  CrossEntropyOptions options;
  options.weight = call.In("weight");
  options.token_weight = call.In("token_weight");
  options.denominator = call.In("denominator");
  options.reduction = call.ReductionNumber();
  options.ignore_index = call.Integer("ignore_index", kDefaultIgnoreIndex);
  options.label_smoothing = call.Number("label_smoothing", 0);
  options.z_loss = call.Number("z_loss", 0);
  options.softcap = call.Number("softcap", 0);
  options.zero_if_empty = call.Flag("zero_if_empty");
  return options;
}

LinearCrossEntropyOptions LinearOptionsOf(const Call& call) {
  LinearCrossEntropyOptions options;
  options.loss = LossOptionsOf(call);
  options.bias = call.In("linear_bias");
  options.logit_scale = call.Number("logit_scale", 1);
  options.max_workspace = call.MaybeInteger("max_workspace");
  options.skip_below = call.Number("skip_below", 0);
  options.reproducible = call.Flag("reproducible");
  return options;
}

template <class Problem>
Problem LinearProblem(const Call& call) {
  Problem problem{call.Tensor("input"), call.Tensor("linear_weight"), call.Tensor("target")};
  problem.options = LinearOptionsOf(call);
  return problem;
}

LinearCrossEntropyGradients GradientsOf(const Call& call) {
  return {call.Out("grad_input"), call.Out("grad_weight"), call.Out("grad_bias")};
}

Result<Plan> PrepareLinearCrossEntropy(const Call& call) {
  static const float kOne = 1;  // the upstream gradient of the loss, which comes later than the gradients
  auto problem = LinearProblem<LinearCrossEntropy>(call);
  problem.loss = call.Out("loss");
  problem.grad = GradientsOf(call);
  if (problem.grad.input || problem.grad.weight || problem.grad.bias)
    problem.upstream.loss = ConstTensorView(&kOne, DType::kF32, {});
  return Prepare(problem);
}

Result<Plan> PrepareLinearCrossEntropyBackward(const Call& call) {
  auto problem = LinearProblem<LinearCrossEntropyBackward>(call);
  problem.max = call.In("max");
  problem.sum_exp = call.In("sum_exp");
  problem.upstream.loss = call.In("grad_loss");
  problem.grad = GradientsOf(call);
  return Prepare(problem);
}

Result<Plan> PrepareLinearCrossEntropyStatistics(const Call& call) {
  auto problem = LinearProblem<LinearCrossEntropyStatistics>(call);
  problem.max = call.Out("max");
  problem.sum_exp = call.Out("sum_exp");
  problem.target_logit = call.Out("target_logit");
  problem.smoothing = call.Out("smoothing");
  return Prepare(problem);
}

Result<Plan> PrepareLinearCrossEntropyLoss(const Call& call) {
  LinearCrossEntropyLoss problem{call.Tensor("max"), call.Tensor("sum_exp")};
  problem.target_logit = call.In("target_logit");
  problem.smoothing = call.In("smoothing");
  problem.target = call.In("target");
  problem.num_classes = call.Integer("num_classes", 0);
  problem.loss = call.Out("loss");
  problem.options = LossOptionsOf(call);
  return Prepare(problem);
}

using PrepareFunction = Result<Plan>(const Call&);

// The library's dtypes, as XLA and NumPy call them.
struct DTypeNames {
  DType dtype;
  ffi::DataType xla;
  std::string_view numpy;
};
constexpr DTypeNames kDTypes[] = {
    {DType::kF32, ffi::DataType::F32, "float32"},   {DType::kF64, ffi::DataType::F64, "float64"},
    {DType::kF16, ffi::DataType::F16, "float16"},   {DType::kBF16, ffi::DataType::BF16, "bfloat16"},
    {DType::kI64, ffi::DataType::S64, "int64"},     {DType::kI32, ffi::DataType::S32, "int32"},
    {DType::kI16, ffi::DataType::S16, "int16"},     {DType::kI8, ffi::DataType::S8, "int8"},
    {DType::kU8, ffi::DataType::U8, "uint8"},       {DType::kBool, ffi::DataType::PRED, "bool"},
    {DType::kC64, ffi::DataType::C64, "complex64"}, {DType::kC128, ffi::DataType::C128, "complex128"},
};

// That of one of them, by either of its names.
template <class Name>
std::optional<DType> FindDType(Name DTypeNames::*kind, const Name& name) {
  for (const DTypeNames& entry : kDTypes)
    if (entry.*kind == name) return entry.dtype;
  return std::nullopt;
}

ffi::ErrorCode FromCode(Code code) {
  switch (code) {
    case Code::kBadData:
      return ffi::ErrorCode::kOutOfRange;
    case Code::kUnsupported:
      return ffi::ErrorCode::kUnimplemented;
    case Code::kOutOfMemory:
      return ffi::ErrorCode::kResourceExhausted;
    default:
      return ffi::ErrorCode::kInvalidArgument;
  }
}

// A call of XLA's. `good` says that it has the form of one that onehot.jax makes: the program may come from elsewhere.
class XlaCall : public Call {
 public:
  XlaCall(ffi::RemainingArgs operands, ffi::RemainingRets results, ffi::Dictionary attributes)
      : attributes_(attributes) {
    const auto operand_names = attributes.get<std::string_view>("operands");
    const auto result_names = attributes.get<std::string_view>("results");
    if (!operand_names || !result_names) return;
    good_ = Take(*operand_names, operands.size(), [&](std::size_t i) { return operands.get<ffi::AnyBuffer>(i); }) &&
            Take(*result_names, results.size(), [&](std::size_t i) -> ffi::ErrorOr<ffi::AnyBuffer> {
              auto result = results.get<ffi::AnyBuffer>(i);
              if (!result) return ffi::Unexpected(result.error());
              return **result;
            });
  }

  bool good() const { return good_; }

  std::optional<std::int64_t> MaybeInteger(std::string_view name) const override { return Maybe<std::int64_t>(name); }
  std::optional<double> MaybeNumber(std::string_view name) const override { return Maybe<double>(name); }

 private:
  template <class T>
  std::optional<T> Maybe(std::string_view name) const {
    if (!attributes_.contains(name)) return std::nullopt;
    const auto value = attributes_.get<T>(name);
    return value ? std::optional<T>(*value) : std::nullopt;
  }

  // Names have a comma after each.
  template <class Buffers>
  bool Take(std::string_view names, std::size_t count, const Buffers& buffer_at) {
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t comma = names.find(',');
      if (comma == std::string_view::npos) return false;
      const ffi::ErrorOr<ffi::AnyBuffer> buffer = buffer_at(i);
      if (!buffer) return false;
      const std::optional<DType> dtype = FindDType(&DTypeNames::xla, buffer->element_type());
      const auto dims = buffer->dimensions();
      if (!dtype || dims.size() > kMaxRank) return false;
      Add(names.substr(0, comma),
          TensorView(buffer->untyped_data(), TensorLayout::Contiguous(*dtype, {dims.begin(), dims.size()})));
      names.remove_prefix(comma + 1);
    }
    return names.empty();
  }

  ffi::Dictionary attributes_;
  bool good_ = false;
};

// Devices of the CPU, and threads of a program, call at once. They share the threads, as far as is known when a call starts:
// bits do not depend on it.
class ThreadShare {
 public:
  ThreadShare() : running_(count_.fetch_add(1, std::memory_order_relaxed) + 1) {}
  ~ThreadShare() { count_.fetch_sub(1, std::memory_order_relaxed); }
  ThreadShare(const ThreadShare&) = delete;
  ThreadShare& operator=(const ThreadShare&) = delete;

  int threads() const { return std::max(1, (Threads() > 0 ? Threads() : DefaultThreads()) / running_); }

 private:
  static inline std::atomic<int> count_{0};
  int running_;
};

// Working memory is the plan's own: XLA's would have to be a result, which counts as memory of the program for as long as
// the compiler likes, and its size would be part of the compiled program, which may run on another machine.
ffi::Error RunCall(PrepareFunction* prepare, ffi::RemainingArgs operands, ffi::RemainingRets results,
                   ffi::Dictionary attributes) {
  try {
    const XlaCall call(operands, results, attributes);
    if (!call.good())
      return ffi::Error::InvalidArgument("operands and results: must be those that onehot.jax names, are others");
    const Result<Plan> plan = prepare(call);
    const ThreadShare share;
    const Status status = call.Named(plan.ok() ? plan.value().Run(RunOptions{share.threads(), {}}) : plan.status());
    return status.ok() ? ffi::Error::Success() : ffi::Error(FromCode(status.code()), status.message());
  } catch (const std::exception& exception) {  // of memory for names and sentences
    return ffi::Error(ffi::ErrorCode::kResourceExhausted, exception.what());
  }
}

template <PrepareFunction* kPrepare>
XLA_FFI_Error* Handler(XLA_FFI_CallFrame* frame) {
  static auto* const handler =
      ffi::Ffi::Bind()
          .RemainingArgs()
          .RemainingRets()
          .Attrs()
          .To([](ffi::RemainingArgs operands, ffi::RemainingRets results, ffi::Dictionary attributes) {
            return RunCall(kPrepare, operands, results, attributes);
          })
          .release();
  return handler->Call(frame);
}

struct Operator {
  const char* name;
  PrepareFunction* prepare;
  XLA_FFI_Handler* handler;
};

template <PrepareFunction* kPrepare>
constexpr Operator Make(const char* name) {
  return {name, kPrepare, &Handler<kPrepare>};
}

constexpr Operator kOperators[] = {
    Make<PrepareEmbedding>("embedding"),
    Make<PrepareEmbeddingBackward>("embedding_backward"),
    Make<PrepareNllLoss>("nll_loss"),
    Make<PrepareNllLossBackward>("nll_loss_backward"),
    Make<PrepareLinearCrossEntropy>("linear_cross_entropy"),
    Make<PrepareLinearCrossEntropyBackward>("linear_cross_entropy_backward"),
    Make<PrepareLinearCrossEntropyStatistics>("linear_cross_entropy_statistics"),
    Make<PrepareLinearCrossEntropyLoss>("linear_cross_entropy_loss"),
};

// Name, dtype and shape.
using Signature = std::vector<std::tuple<std::string, std::string, std::vector<std::int64_t>>>;

// A call as Python describes it when a function is traced.
class TracedCall : public Call {
 public:
  TracedCall(const Signature& tensors, nb::dict attributes) : attributes_(std::move(attributes)) {
    for (const auto& [name, dtype, shape] : tensors) {
      const std::optional<DType> known = FindDType<std::string_view>(&DTypeNames::numpy, dtype);
      if (!known)
        Refuse(PyExc_TypeError,
               fmt::format("{}: its dtype must be float32, float64, float16, bfloat16, int64, int32, int16, "
                           "int8, uint8, bool, complex64 or complex128, is {}",
                           name, dtype));
      if (shape.size() > kMaxRank)
        Refuse(PyExc_ValueError, fmt::format("{}: must have at most {} axes, has {}", name, kMaxRank, shape.size()));
      Add(name, TensorView(nullptr, TensorLayout::Contiguous(*known, shape)));
    }
  }

  std::optional<std::int64_t> MaybeInteger(std::string_view name) const override { return Maybe<std::int64_t>(name); }
  std::optional<double> MaybeNumber(std::string_view name) const override { return Maybe<double>(name); }

 private:
  template <class T>
  std::optional<T> Maybe(std::string_view name) const {
    const nb::str key(name.data(), name.size());
    return attributes_.contains(key) ? std::optional<T>(nb::cast<T>(attributes_[key])) : std::nullopt;
  }

  nb::dict attributes_;
};

// Raises what is wrong with a call; returns the bytes of working memory it takes.
std::size_t CheckCall(std::string_view name, const Signature& tensors, nb::dict attributes) {
  const Operator* const known = std::ranges::find(kOperators, name, &Operator::name);
  if (known == std::end(kOperators)) throw nb::value_error(fmt::format("{} is no operator", name).c_str());
  const TracedCall call(tensors, std::move(attributes));
  const Result<Plan> plan = known->prepare(call);
  if (!plan.ok()) Raise(call.Named(plan.status()));
  return plan.value().scratch_bytes();
}

}  // namespace

void BindFfi(nb::module_& module) {
  module.def(
      "xla_handlers",
      [] {
        nb::dict handlers;
        for (const Operator& entry : kOperators)
          handlers[entry.name] = nb::capsule(reinterpret_cast<const void*>(entry.handler));
        return handlers;
      },
      nb::sig("def xla_handlers() -> dict[str, object]"));
  module.def("xla_interface", [] { return nb::make_tuple(XLA_FFI_API_MAJOR, XLA_FFI_API_MINOR); });
  module.def("xla_check", &CheckCall, nb::arg("name"), nb::arg("tensors"), nb::arg("attributes"));
}

}  // namespace onehot::python

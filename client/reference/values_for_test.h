#ifndef PARLEY_CLIENT_REFERENCE_VALUES_FOR_TEST_H_
#define PARLEY_CLIENT_REFERENCE_VALUES_FOR_TEST_H_

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/reference/remote_agent.h"
#include "client/reference/remote_value.h"
#include "common/clock/steady_now.h"

namespace parley {

inline absl::Time Soon() { return SteadyNow() + absl::Seconds(30); }

// A value of one tensor.
template <class Element>
RemoteValue ValueOf(DataType dtype, std::vector<Element> elements) {
  auto memory = std::make_shared<std::vector<Element>>(std::move(elements));
  ValueTensor tensor;
  tensor.dtype = dtype;
  tensor.shape = {static_cast<int64_t>(memory->size())};
  tensor.bytes = TensorBytes::Piece(reinterpret_cast<const std::byte*>(memory->data()),
                                    memory->size() * sizeof(Element));
  tensor.owner = memory;
  RemoteValue value;
  value.tensors.push_back(std::move(tensor));
  return value;
}
template <class Element>
std::vector<Element> ElementsOf(const RemoteValue& value) {
  std::vector<Element> elements(value.tensors.at(0).bytes.size() / sizeof(Element));
  value.tensors[0].bytes.CopyTo(reinterpret_cast<std::byte*>(elements.data()));
  return elements;
}

inline RemoteValue Numbers(const std::vector<float>& numbers) { return ValueOf(F32, numbers); }
inline std::vector<float> NumbersOf(const RemoteValue& value) { return ElementsOf<float>(value); }

inline RemoteValue Text(const std::string& text) {
  return ValueOf(U8, std::vector<char>(text.begin(), text.end()));
}
inline std::string TextOf(const RemoteValue& value) {
  const std::vector<char> letters = ElementsOf<char>(value);
  return std::string(letters.begin(), letters.end());
}

// A function: the sum of its arguments.
inline absl::StatusOr<RemoteValue> Add(const RemoteCall& call) {
  std::vector<float> sum;
  for (const RemoteReference& argument : call.arguments) {
    const absl::StatusOr<ValuePtr> value = argument.Fetch(Soon());
    if (!value.ok()) return value.status();
    const std::vector<float> numbers = NumbersOf(**value);
    sum.resize(numbers.size());
    for (size_t i = 0; i < numbers.size(); ++i) sum[i] += numbers[i];
  }
  return Numbers(sum);
}

}  // namespace parley

#endif  // PARLEY_CLIENT_REFERENCE_VALUES_FOR_TEST_H_

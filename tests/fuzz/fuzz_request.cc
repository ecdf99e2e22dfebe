// Bodies of requests, up to what the batch would be asked, grammars included.
#include <cstdint>
#include <memory>
#include <string>

#include "model/tiny_model.h"
#include "server/api_request.h"
#include "winnow/sampling.h"

using namespace winnow;          // NOLINT(google-build-using-namespace)
using namespace winnow::server;  // NOLINT(google-build-using-namespace)

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const std::shared_ptr<const Model> model = [] {
    return Model::load(test::TinyModel({.chat_template = test::kChatmlTemplate}).path());
  }();
  if (size == 0) return 0;
  const std::string text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const Endpoint endpoint = (data[0] & 1) == 0 ? Endpoint::kChat : Endpoint::kCompletion;
  try {
    const ApiRequest request = parse_request(endpoint, RequestBody(text), *model, {});
    if (!request.batch.sampling.grammar.empty()) Sampler(model, request.batch.sampling);
  } catch (const ApiError& error) {
    if (error.status != 400) __builtin_trap();
    to_text(error.body());
  } catch (const Error& error) {
    if (api_error(error).status != 400) __builtin_trap();
  }
  return 0;
}

// Reads a long text into a KV cache that keeps a fifth of it, then answers a question about it.
//   generate MODEL.gguf TEXT_FILE "QUESTION"
#include <winnow/winnow.h>

#include <fstream>
#include <iostream>
#include <sstream>

int main(int argc, char** argv) {
  if (argc != 4) {
    std::cerr << "usage: generate MODEL.gguf TEXT_FILE QUESTION\n";
    return 2;
  }
  try {
    std::ifstream file(argv[2], std::ios::binary);
    if (!file) throw winnow::Error(winnow::ErrorCode::kNotFound, std::string("cannot open ") + argv[2]);
    std::ostringstream text;
    text << file.rdbuf();

    const auto model = winnow::Model::load(argv[1]);
    const auto engine = winnow::Engine::create(model);
    winnow::Session session = engine->open(
        {.eviction = winnow::EvictionOptions::parse("snapkv:window=32"), .budget = winnow::Budget::parse("20%")});

    // The context is cut to its budget; the question after it is kept whole.
    session.prefill(model->tokenize(text.str(), /*add_special=*/true, /*parse_special=*/false));
    session.append(model->tokenize("\n\nQuestion: " + std::string(argv[3]) + "\nAnswer:", false, false));

    winnow::SamplingOptions greedy;
    greedy.temperature = 0.0f;
    winnow::Sampler sampler(model, greedy);
    const winnow::GenerationResult answer = winnow::generate(
        session, sampler, {.max_tokens = 32, .stops = {"\n\n"}}, [](const winnow::GenerationStep& step) {
          std::cout << step.text << std::flush;  // whole characters
          return true;
        });
    const winnow::SessionStatistics statistics = session.statistics();
    std::cout << "\n";
    if (answer.reason == winnow::FinishReason::kLength) std::cerr << "(cut off after 32 tokens)\n";
    std::cerr << statistics.entries_kept << " of " << statistics.entries_full << " entries kept\n";
  } catch (const winnow::Error& error) {
    std::cerr << "error: " << error.what() << "\n";
    return 1;
  }
}

// Reads a long text into a KV cache that keeps a fifth of it, then answers a question about it.
//   generate MODEL.gguf TEXT_FILE "QUESTION"
#include <winnow/winnow.h>

#include <fstream>
#include <iostream>
#include <string>

// Returns the text of the file. Throws Error(kContextFull) if it has more than most_bytes bytes.
std::string read_text(const std::string& path, std::size_t most_bytes) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw winnow::Error(winnow::ErrorCode::kNotFound, "cannot open " + path);
  std::string text(most_bytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(file.gcount()));
  if (text.size() > most_bytes) {
    throw winnow::Error(winnow::ErrorCode::kContextFull, path + " is longer than any context");
  }
  return text;
}

int main(int argc, char** argv) {
  if (argc != 4) {
    std::cerr << "usage: generate MODEL.gguf TEXT_FILE QUESTION\n";
    return 2;
  }
  try {
    const std::string text = read_text(argv[2], std::size_t{16} << 20);
    const auto model = winnow::Model::load(argv[1]);
    const auto engine = winnow::Engine::create(model);
    winnow::Session session = engine->open(
        {.eviction = winnow::EvictionOptions::parse("snapkv:window=32"), .budget = winnow::Budget::parse("20%")});

    // The context is cut to its budget; the question after it is kept whole.
    session.prefill(model->tokenize(text, /*add_special=*/true, /*parse_special=*/false));
    session.append(model->tokenize("\n\nQuestion: " + std::string(argv[3]) + "\nAnswer:", false, false));

    winnow::SamplingOptions greedy;
    greedy.temperature = 0.0f;
    winnow::Sampler sampler(model, greedy);
    const winnow::GenerationResult answer = winnow::generate(
        session, sampler, {.max_tokens = 32, .stops = {"\n\n"}}, [](const winnow::GenerationStep& step) {
          std::cout << step.text << std::flush;  // whole UTF-8 characters
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

// render_chat TEMPLATE: renders the chats on the standard input with a tiny model and the template in that file. Each
// line is {"messages": [{"role", "content"}...], "add_generation_prompt"} and is answered by a line {"text"} or
// {"error"}. The first line of output is {"bos_token", "eos_token"}. For chat_template_jinja_test.py.
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "model/tiny_model.h"
#include "winnow/chat.h"
#include "winnow/error.h"

using winnow::ChatMessage;
using Json = nlohmann::json;

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const winnow::test::TinyModel file({.chat_template = winnow::test::read_bytes(argv[1])});
  const auto model = winnow::Model::load(file.path());
  const auto text_of = [&](winnow::Token token) { return model->token_text(token, true); };
  std::cout << Json{{"bos_token", text_of(1)}, {"eos_token", text_of(2)}}.dump() << std::endl;
  for (std::string line; std::getline(std::cin, line);) {
    const Json chat = Json::parse(line);
    std::vector<ChatMessage> messages;
    for (const Json& one : chat.at("messages")) {
      messages.push_back({.role = one.at("role").get<std::string>(), .content = one.at("content").get<std::string>()});
    }
    Json answer;
    try {
      answer["text"] = model->apply_chat_template(messages, chat.at("add_generation_prompt").get<bool>());
    } catch (const winnow::Error& error) {
      answer["error"] = error.what();
    }
    std::cout << answer.dump() << std::endl;
  }
}

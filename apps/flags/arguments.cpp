#include "convoy/apps/flags/arguments.h"

// Included in this file only: it takes seconds to compile.
#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

#include "convoy/kernels/base/check.h"

namespace convoy {

Arguments split_arguments(int argc, const char* const* argv, std::span<const ArgumentName> names,
                          bool has_positionals, bool has_command) {
  CLI::App app;
  app.set_help_flag();  // the program has its own
  app.allow_extras();
  app.prefix_command(has_command);
  std::vector<CLI::Option*> options;
  for (const auto& [name, short_name, is_switch, is_negatable, without_value] : names) {
    const std::string both =
        short_name == '\0' ? fmt::format("--{}", name) : fmt::format("-{},--{}", short_name, name);
    if (is_switch)
      options.push_back(app.add_flag(is_negatable ? fmt::format("{},!--no-{}", both, name) : both));
    else
      options.push_back(app.add_option(both)
                            ->expected(without_value.empty() ? 1 : 0, 1)
                            ->default_str(without_value)
                            ->take_last());
  }
  Arguments arguments;
  if (has_positionals) app.add_option("arguments", arguments.positionals);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ArgumentMismatch& error) {
    const std::string text = error.what();  // begins with the name
    fail<UsageError>("{}: its value is missing", text.substr(0, text.find(':')));
  } catch (const CLI::ParseError& error) {
    fail<UsageError>("{}", error.what());
  }
  for (const CLI::Option* const option : options) arguments.values.push_back(option->results());
  arguments.rest = app.remaining();
  return arguments;
}

}  // namespace convoy

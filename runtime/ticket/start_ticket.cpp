#include <shoal/internal/runtime/ticket/start_ticket.h>

#include <fmt/format.h>
#include <shoal/internal/runtime/ticket/ticket_text.h>
#include <shoal/ipc/error.h>

namespace shoal {
namespace {

// Readable, because it is what `ps` shows.
constexpr std::string_view kChildPrefix = "--shoal-child=";
constexpr std::string_view kForkServerPrefix = "--shoal-fork-server=";

}  // namespace

std::string StartTicket::to_argument() const {
  return fmt::format("{}{}", role == Role::kChild ? kChildPrefix : kForkServerPrefix, numbers_of(*this));
}

std::optional<StartTicket> StartTicket::from_argument(std::string_view argument) {
  StartTicket ticket;
  if (argument.starts_with(kChildPrefix))
    ticket.role = Role::kChild;
  else if (argument.starts_with(kForkServerPrefix))
    ticket.role = Role::kForkServer;
  else
    return std::nullopt;
  if (!read_numbers(argument.substr(argument.find('=') + 1), ticket))
    throw Error(fmt::format("'{}' is nothing that shoal has written: it starts processes with it and is not for people",
                            argument));
  return ticket;
}

}  // namespace shoal

#include <shoal/internal/runtime/ticket/start_ticket.h>

#include <fmt/format.h>
#include <shoal/ipc/error.h>

#include <cstdio>

namespace shoal {
namespace {

// Readable, because it is what `ps` shows.
constexpr std::string_view kChildPrefix = "--shoal-child=";
constexpr std::string_view kForkServerPrefix = "--shoal-fork-server=";

}  // namespace

std::string StartTicket::to_argument() const {
  return fmt::format("{}{},{},{},{},{},{},{},{},{},{},{},{},{},{}",
                     role == Role::kChild ? kChildPrefix : kForkServerPrefix, parent, parent_tag, memory, liveness,
                     requests, fork_server, served, spares, freeze, lifeline, blocks.channel.block.value,
                     blocks.channel.word, blocks.crash_record.block.value, blocks.crash_record.word);
}

std::optional<StartTicket> StartTicket::from_argument(std::string_view argument) {
  StartTicket ticket;
  if (argument.starts_with(kChildPrefix))
    ticket.role = Role::kChild;
  else if (argument.starts_with(kForkServerPrefix))
    ticket.role = Role::kForkServer;
  else
    return std::nullopt;
  std::string numbers(argument.substr(argument.find('=') + 1));
  unsigned long long channel = 0, record = 0;
  int end = 0;
  int got = std::sscanf(numbers.c_str(), "%d,%u,%d,%d,%d,%d,%d,%d,%d,%d,%llu,%u,%llu,%u%n", &ticket.parent,
                        &ticket.parent_tag, &ticket.memory, &ticket.liveness, &ticket.requests, &ticket.fork_server,
                        &ticket.served, &ticket.spares, &ticket.freeze, &ticket.lifeline, &channel,
                        &ticket.blocks.channel.word, &record, &ticket.blocks.crash_record.word, &end);
  ticket.blocks.channel.block.value = channel;
  ticket.blocks.crash_record.block.value = record;
  if (got != 14 || std::size_t(end) != numbers.size())
    throw Error(fmt::format("'{}' is nothing that shoal has written: it starts processes with it and is not for people",
                            argument));
  return ticket;
}

}  // namespace shoal

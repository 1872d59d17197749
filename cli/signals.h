// Ctrl-C, SIGTERM and SIGHUP: the first one asks the run to stop, the second one stops it at once. Either way the
// temporary files are gone afterwards.
#ifndef ONEHOT_CLI_SIGNALS_H_
#define ONEHOT_CLI_SIGNALS_H_

namespace onehot::cli {

// Signals that are ignored when the process starts (nohup) stay ignored.
void InstallSignalHandlers();

// The signal that asked to stop, or 0.
int PendingSignal();

// Throws a Failure with the exit code of the pending signal, if there is one.
void ThrowIfInterrupted();

// Names a file that goes away when the process is stopped. The text must live until it is forgotten.
void RememberTemporary(const char* path);
void ForgetTemporary(const char* path);

}  // namespace onehot::cli

#endif  // ONEHOT_CLI_SIGNALS_H_

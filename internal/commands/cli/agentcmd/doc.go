// Package agentcmd has the command of the agent, as a subcommand of gatehouse and as a program of its own,
// gatehouse-agent, which links no API server.
package agentcmd

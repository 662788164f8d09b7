// Package replies reads the replies that the clients of this server itself get.
package replies

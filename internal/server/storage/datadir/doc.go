// Package datadir prepares the directory in which a server keeps everything that it writes. The
// file FORMAT names the layout of the directory: a server refuses a directory with another
// layout. So does a key in an etcd that several servers share.
package datadir

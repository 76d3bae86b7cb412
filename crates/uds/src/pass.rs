//! Open files, passed from one process to another over a unix socket.

use std::{
    io::{self, IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

/// The data byte that carries the files.
const MARK: u8 = b'F';
/// The most files in one message.
const MOST: usize = 8;

/// Sends at most eight files, with one byte of data. The files stay open in this process.
///
/// # Errors
/// When the other end is closed.
pub fn send_files(socket: &impl AsFd, files: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(files)) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "too many files at once"));
    }
    sendmsg(socket, &[IoSlice::new(&[MARK])], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Receives the files that [`send_files`] sent. Other data gives no files; its first byte is
/// returned. Blocks if the socket is blocking.
///
/// # Errors
/// When the other end is gone.
pub fn receive_files(socket: &impl AsFd) -> io::Result<Result<Vec<OwnedFd>, u8>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let received = rustix::io::retry_on_intr(|| {
        recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut control, RecvFlags::CMSG_CLOEXEC)
    })?;
    if received.bytes == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let mut files = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(passed) = message {
            files.extend(passed);
        }
    }
    if received.flags.contains(ReturnFlags::CTRUNC) {
        return Err(io::Error::other("not all files arrived: too many are open in this process"));
    }
    Ok(if byte[0] == MARK { Ok(files) } else { Err(byte[0]) })
}

#[cfg(test)]
mod tests {
    use std::{
        fs::File,
        io::{Read, Seek, Write},
        os::unix::net::UnixStream,
    };

    use super::*;

    #[test]
    fn files_arrive_and_other_bytes_are_told_apart() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let mut folder = tempfile::tempfile().unwrap();
        folder.write_all(b"text").unwrap();
        send_files(&ours, &[folder.as_fd(), ours.as_fd()]).unwrap();
        (&ours).write_all(b"x").unwrap();
        let files = receive_files(&theirs).unwrap().unwrap();
        assert_eq!(files.len(), 2);
        let mut file = File::from(files.into_iter().next().unwrap());
        file.rewind().unwrap();
        let mut text = String::new();
        file.read_to_string(&mut text).unwrap();
        assert_eq!(text, "text");
        assert_eq!(receive_files(&theirs).unwrap().unwrap_err(), b'x');
        drop(ours);
        let error = receive_files(&theirs).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }
}

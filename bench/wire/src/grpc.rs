//! Calls by tonic, with a codec that copies bytes.

use crate::{ANSWER, REQUEST, certificates};
use anyhow::Result;
use bytes::{Buf, BufMut, Bytes};
use std::convert::Infallible;
use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};
use tokio::task::JoinSet;
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tokio_stream::{Stream, StreamExt};
use tonic::body::Body;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Identity, Server, ServerTlsConfig};
use tonic::{Request, Response, Status, Streaming};

/// Bytes as they are.
#[derive(Clone, Copy, Default)]
struct Raw;

impl Codec for Raw {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Raw;
    type Decoder = Raw;

    fn encoder(&mut self) -> Raw {
        Raw
    }

    fn decoder(&mut self) -> Raw {
        Raw
    }
}

impl Encoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put(item);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        let length = buffer.remaining();
        Ok(Some(buffer.copy_to_bytes(length)))
    }
}

const NOTHING: Bytes = Bytes::from_static(&[2; ANSWER]);
const OPERATION: Bytes = Bytes::from_static(&[1; REQUEST]);

/// Answers without doing anything.
#[derive(Clone)]
struct Nothing;

type Answered<T> = Pin<Box<dyn Future<Output = Result<Response<T>, Status>> + Send>>;

impl tonic::server::UnaryService<Bytes> for Nothing {
    type Response = Bytes;
    type Future = Answered<Bytes>;

    fn call(&mut self, _request: Request<Bytes>) -> Self::Future {
        Box::pin(async { Ok(Response::new(NOTHING)) })
    }
}

impl tonic::server::StreamingService<Bytes> for Nothing {
    type Response = Bytes;
    type ResponseStream = Pin<Box<dyn Stream<Item = Result<Bytes, Status>> + Send>>;
    type Future = Answered<Self::ResponseStream>;

    fn call(&mut self, request: Request<Streaming<Bytes>>) -> Self::Future {
        let answers = request.into_inner().map(|message| message.map(|_| NOTHING));
        let answers: Self::ResponseStream = Box::pin(answers);
        Box::pin(async { Ok(Response::new(answers)) })
    }
}

impl tonic::server::NamedService for Nothing {
    const NAME: &'static str = "canopy.Nothing";
}

impl tower_service::Service<http::Request<Body>> for Nothing {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        Box::pin(async move {
            let mut grpc = tonic::server::Grpc::new(Raw);
            Ok(match request.uri().path().ends_with("Streamed") {
                true => grpc.streaming(Nothing, request).await,
                false => grpc.unary(Nothing, request).await,
            })
        })
    }
}

fn runtime() -> Result<tokio::runtime::Runtime> {
    // One thread at each end, as ours have.
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?)
}

/// Serves one address, and prints it, until the end of the input.
pub fn serve(tls: Option<&Path>) -> Result<()> {
    std::thread::spawn(|| {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        std::process::exit(0);
    });
    runtime()?.block_on(async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        println!("{}", listener.local_addr()?);
        let mut server = Server::builder().tcp_nodelay(true);
        if let Some(directory) = tls {
            let read = |file| certificates::read(directory, file);
            let config = ServerTlsConfig::new()
                .identity(Identity::from_pem(read("server.pem")?, read("server.key")?))
                .client_ca_root(Certificate::from_pem(read("root.pem")?));
            server = server.tls_config(config)?;
        }
        let incoming = TcpListenerStream::new(listener).map(|stream| {
            let stream = stream?;
            stream.set_nodelay(true)?;
            Ok::<_, std::io::Error>(stream)
        });
        server.add_service(Nothing).serve_with_incoming(incoming).await?;
        Ok(())
    })
}

async fn connect(address: &str, tls: Option<&Path>) -> Result<Channel> {
    let scheme = if tls.is_some() { "https" } else { "http" };
    let mut endpoint = Channel::from_shared(format!("{scheme}://{address}"))?.tcp_nodelay(true);
    if let Some(directory) = tls {
        let read = |file| certificates::read(directory, file);
        let config = ClientTlsConfig::new()
            .domain_name("localhost")
            .ca_certificate(Certificate::from_pem(read("root.pem")?))
            .identity(Identity::from_pem(read("client.pem")?, read("client.key")?));
        endpoint = endpoint.tls_config(config)?;
    }
    Ok(endpoint.connect().await?)
}

/// Calls the address by `clients` connections, each with `operations` at a time, until it must stop.
pub fn call(
    address: &str,
    is_streamed: bool,
    (clients, operations): (usize, usize),
    tls: Option<&Path>,
    count: &'static AtomicU64,
    stop: &'static AtomicBool,
) -> Result<()> {
    runtime()?.block_on(async {
        let mut tasks = JoinSet::new();
        for _ in 0..clients {
            let channel = connect(address, tls).await?;
            match is_streamed {
                true => drop(tasks.spawn(stream(channel, operations, count, stop))),
                false => {
                    for _ in 0..operations {
                        tasks.spawn(unary(channel.clone(), count, stop));
                    }
                }
            }
        }
        while let Some(outcome) = tasks.join_next().await {
            outcome??;
        }
        Ok(())
    })
}

async fn unary(channel: Channel, count: &AtomicU64, stop: &AtomicBool) -> Result<()> {
    let path = http::uri::PathAndQuery::from_static("/canopy.Nothing/Unary");
    let mut grpc = tonic::client::Grpc::new(channel);
    while !stop.load(Ordering::Relaxed) {
        grpc.ready().await?;
        let answer = grpc.unary(Request::new(OPERATION), path.clone(), Raw).await?;
        anyhow::ensure!(answer.into_inner().len() == ANSWER);
        count.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

async fn stream(
    channel: Channel,
    operations: usize,
    count: &AtomicU64,
    stop: &AtomicBool,
) -> Result<()> {
    let path = http::uri::PathAndQuery::from_static("/canopy.Nothing/Streamed");
    let mut grpc = tonic::client::Grpc::new(channel);
    grpc.ready().await?;
    let (sender, receiver) = tokio::sync::mpsc::channel(operations);
    for _ in 0..operations {
        sender.send(OPERATION).await?;
    }
    let request = Request::new(ReceiverStream::new(receiver));
    let mut answers = grpc.streaming(request, path, Raw).await?.into_inner();
    while !stop.load(Ordering::Relaxed) {
        let answer = answers.message().await?;
        anyhow::ensure!(answer.is_some_and(|answer| answer.len() == ANSWER));
        count.fetch_add(1, Ordering::Relaxed);
        sender.send(OPERATION).await?;
    }
    Ok(())
}
